"""What a plan has from elsewhere, and what a person has to agree to before its modules get keys and variables.

A value is the person's own if it stands in the home's `config/`, in what is shipped, or in a folder of this machine
that was registered as a collection or a bundle, or if a program that opens sessions itself lays it over. The rest comes
from elsewhere: fetched profiles and bundles, overlays of projects, and requests. There a provider's key goes to the
hosts that the module declares as its own, and a module
is given the variables that it declares, in the fields it declares them for:

    [credentials]
    environment = ["ACME_API_KEY"]
    hosts = ["https://api.acme.example"]

    [variables]
    base_url = ["ACME_BASE_URL"]

Anything else takes an agreement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS, MountPlan, PlanEntry
from amplifierd.agreements import KEY, Agreement, Agreements
from amplifierd.exceptions import AgreementNeededError
from amplifierd.identifiers import is_kept_secret
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.origins import key_path, origin_at
from amplifierd.profiles.documents.document import module_identity

from .runtime_values import declared_by, key_variables

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle

VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-?(?P<default>[^}]*))?\}")
"""How a plan names a variable of the environment."""

Steps = tuple[str, ...]
FindVariable = Callable[[str], str | None]
FindPlace = Callable[[Steps, Any], str | None]
"""Says where a value of a plan comes from; None for a value that is the person's own."""

_API_KEY = "api_key"
_PORTS = {"http": 80, "https": 443}
_LONGEST_SHOWN = 400
_UNCLEAR = re.compile(r"[\s\\\x00-\x1f\x7f-\uffff]")
_HOST_FIELD = re.compile(
    r"(?:^|_)(?:host|hostname|endpoint|server|url|uri|address|proxy|api_base|base)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Need:
    """What a module would get, and where its plan says so."""

    agreement: Agreement
    place: str
    text: str

    def __str__(self) -> str:
        what = "its key" if self.agreement.gets == KEY else f"the variable {self.agreement.gets}"
        hosts = f" for {', '.join(map(_in_one_line, self.agreement.hosts))}" if self.agreement.hosts else ""
        return f"{self.agreement.module} would get {what}{hosts}: {self.text} ({_in_one_line(self.place)})"


class ForeignValues:
    """Decides for the plan of one session. `find` gives the value of a variable, `find_key` a provider's stored key."""

    def __init__(
        self,
        place_of: FindPlace,
        agreements: Agreements,
        find: FindVariable,
        find_key: FindVariable,
        resolver: ModuleSourceResolver | None = None,
    ) -> None:
        self._place_of, self._agreements, self._resolver = place_of, agreements, resolver
        self._find, self._find_key = find, find_key

    def check(self, plan: Mapping[str, Any]) -> None:
        """Raise for what the plan would give to modules and no one agreed to.

        Raises:
            AgreementNeededError: with everything that is needed.
        """
        needs = [need for steps, entry in _entries(plan) for need in self._needs(steps, entry)]
        missing = [need for need in needs if not self._agreements.cover(need.agreement)]
        if missing:
            agreements = tuple(dict.fromkeys(need.agreement for need in missing))
            text = "".join(f"\n  {need}" for need in dict.fromkeys(missing))
            raise AgreementNeededError(
                f"What comes from elsewhere gets keys and variables only if you agree:{text}",
                [each.to_dict() for each in agreements],
                hint="if you want that: " + "; ".join(each.command for each in agreements),
            )

    def finder(self, plan: Mapping[str, Any]) -> Callable[[Steps, str], FindVariable | None]:
        """Return what says, for a text at a place of the plan, how its variables are found; None leaves it as it is."""
        entries = dict(_entries(plan))

        def find_for(steps: Steps, text: str) -> FindVariable | None:
            if self._place_of(steps, text) is None:
                return self._find
            owner = next((known for known in entries if steps[: len(known)] == known), None)
            if owner is None:
                return None if steps[:1] == ("agents",) else lambda name: None
            entry, field = entries[owner], steps[len(owner) :]

            def find(name: str) -> str | None:
                return self._find(name) if self._may_have(entry, field, name) else None

            return find

        return find_for

    def _needs(self, steps: Steps, entry: PlanEntry) -> Iterator[Need]:
        found = ((field, text, self._place_of((*steps, *field), text)) for field, text in _texts(entry.config))
        foreign = [(field, text, place) for field, text, place in found if place is not None]
        hosts = tuple(dict.fromkeys(host for field, text in _texts(entry.config) if (host := _host(field, text))))
        for field, text, place in foreign:
            for match in VARIABLE.finditer(text):
                is_given = match["default"] is None and self._find(match["name"]) is not None
                if is_given and not self._is_declared(entry, field, match["name"]):
                    yield Need(Agreement(entry.module_id, match["name"], hosts), place, _shown(field, text))
        if entry.module_type == "provider":
            known = _table(declared_by(entry, self._resolver), "credentials").get("hosts") or ()
            for field, text, place in foreign:
                host = _host(field, self._expanded(entry, field, text))
                if host and host not in known and self._gives_key(steps, entry):
                    yield Need(Agreement(entry.module_id, KEY, (host,)), place, _shown(field, text))

    def _gives_key(self, steps: Steps, entry: PlanEntry) -> bool:
        """True if the module has a key that is the person's: one that an author wrote is the author's own."""
        given, field = entry.config.get(_API_KEY), (_API_KEY,)
        if isinstance(given, str):
            is_own = self._place_of((*steps, *field), given) is None
            names = [match["name"] for match in VARIABLE.finditer(given) if not is_kept_secret(match["name"])]
            if is_own or any(self._find(name) for name in names):
                return True
            if self._expanded(entry, field, given).strip():
                return False
        variables = key_variables(entry, self._resolver)
        return bool(variables) and (any(map(self._find, variables)) or self._find_key(entry.module_id) is not None)

    def _expanded(self, entry: PlanEntry, field: Steps, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            found = self._find(match["name"]) if self._may_have(entry, field, match["name"]) else None
            return found or match["default"] or ""

        return VARIABLE.sub(value, text)

    def _may_have(self, entry: PlanEntry, field: Steps, name: str) -> bool:
        if self._is_declared(entry, field, name):
            return True
        hosts = (host for inner, text in _texts(entry.config) if (host := _host(inner, text)))
        return self._agreements.cover(Agreement(entry.module_id, name, tuple(dict.fromkeys(hosts))))

    def _is_declared(self, entry: PlanEntry, field: Steps, name: str) -> bool:
        """True for what belongs to the module, and for a secret that the author wrote, which is kept under a name."""
        if is_kept_secret(name):
            return True
        declared = _table(declared_by(entry, self._resolver), "variables").get(".".join(field)) or ()
        is_key = (
            entry.module_type == "provider" and field == (_API_KEY,) and name in key_variables(entry, self._resolver)
        )
        return is_key or name in declared


def _entries(plan: Mapping[str, Any]) -> Iterator[tuple[Steps, PlanEntry]]:
    """Yield the modules of a plan, each with the steps to its configuration."""
    for entry in MountPlan(plan).entries():
        above = ("session", entry.section) if entry.section in SESSION_MEMBERS else (entry.section, entry.identity)
        yield (*above, "config"), entry


def _texts(value: Any, above: Steps = ()) -> Iterator[tuple[Steps, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*above, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*above, str(index)))
    elif isinstance(value, str):
        yield above, value


def _host(field: Steps, text: str) -> str | None:
    """Return the host that a text of a configuration names, with scheme and port, None for any other text.

    What programs might read differently stands for itself, whole, so that it is nobody's known host.
    """
    if "://" not in text:
        return text.strip() or None if field and _HOST_FIELD.search(field[-1]) else None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return text
    if not host or _UNCLEAR.search(text):
        return text
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, _PORTS.get(parts.scheme)) else "")


def _table(declared: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = declared.get(name)
    return found if isinstance(found, Mapping) else {}


def _shown(field: Steps, text: str) -> str:
    """Return a value as a question has it: in one line, and not so long that it hides what is asked."""
    shown = _in_one_line(f"{'.'.join(field)}: {text}")
    if len(shown) <= _LONGEST_SHOWN:
        return shown
    return f"{shown[:_LONGEST_SHOWN]}… ({len(shown):,} characters)"


def _in_one_line(text: str) -> str:
    return "\\n".join(text.splitlines())


# Where the values of a session's plan come from: of its own person, or from elsewhere, and then from which file.


Overrides = Mapping[str, Any]

_REQUEST = "the project or the request"
_NOTHING: Any = object()
_NONE: Overrides = MappingProxyType({})


def own_place(steps: Steps, value: Any) -> None:
    """Say of every value that it is the person's own: of a plan that they wrote themselves."""


def requested_place(steps: Steps, value: Any) -> str:
    """Say of every value that it comes from a request."""
    return _REQUEST


class OfPlan:
    """The origins of a plan that the person wrote themselves: only what others laid over it comes from elsewhere."""

    def __init__(self, foreign: Overrides) -> None:
        self._foreign = foreign

    def __call__(self, steps: Steps, value: Any) -> str | None:
        return _REQUEST if _value_at(self._foreign, steps) == value else None


class OfBuild:
    """The origins of a compiled profile's plan; `is_fetched` says whether a collection comes from elsewhere.

    A value that the build does not have at its place was laid over it, by the person if it is among `own`. `agent` is
    the one that the session works as: its own part of the plan counts as well.
    """

    def __init__(
        self, build: Build, is_fetched: Callable[[str], bool], agent: str | None = None, own: Overrides = _NONE
    ) -> None:
        self._build, self._is_fetched, self._agent, self._own = build, is_fetched, agent, own

    @property
    def profile(self) -> str:
        return str(self._build.profile_id)

    def for_agent(self, agent: str) -> OfBuild:
        return OfBuild(self._build, self._is_fetched, agent, self._own)

    def with_own(self, own: Overrides) -> OfBuild:
        return OfBuild(self._build, self._is_fetched, self._agent, own)

    def __call__(self, steps: Steps, value: Any) -> str | None:
        if _value_at(self._own, steps) == value:
            return None
        place = _REQUEST
        for above in ((), *([("agents", self._agent)] if self._agent else [])):
            path = (*above, *steps)
            if _value_at(self._plan, path) == value:
                origin = origin_at(self._origins, path)["origin"]
                if self._is_own(origin):
                    return None
                place = f"{origin['profile']} line {origin['line']}" if origin["line"] else str(origin["profile"])
        return place

    def _is_own(self, origin: Mapping[str, Any]) -> bool:
        file = str(origin["file"] or "")
        if not file or file.startswith("config/"):
            return True
        return not self._is_fetched(str(origin["profile"]).partition("/")[0])

    @cached_property
    def _plan(self) -> dict[str, Any]:
        return self._build.plan()

    @cached_property
    def _origins(self) -> dict[str, Any]:
        return self._build.origins()


class OfBundle:
    """The origins of a bundle's plan: what lies in the cache was fetched, what is among `own` is the person's.

    `base` has those of the profile below it.
    """

    def __init__(
        self,
        bundle: Bundle,
        cache_dir: Path,
        agent: str | None = None,
        *,
        base: OfBuild | None = None,
        own: Overrides = _NONE,
    ) -> None:
        self._bundle, self._cache_dir, self._agent, self._base, self._own = bundle, cache_dir, agent, base, own

    def for_agent(self, agent: str) -> OfBundle:
        base = self._base and self._base.for_agent(agent)
        return OfBundle(self._bundle, self._cache_dir, agent, base=base, own=self._own)

    def with_own(self, own: Overrides) -> OfBundle:
        return OfBundle(self._bundle, self._cache_dir, self._agent, base=self._base, own=own)

    def __call__(self, steps: Steps, value: Any) -> str | None:
        if _value_at(self._own, steps) == value:
            return None
        place = _REQUEST
        for above in ((), *([("agents", self._agent)] if self._agent else [])):
            try:
                known = self._bundle.explain(key_path((*above, *steps)))
            except KeyError:
                continue
            if known["value"] == value:
                file, line = known["origin"]["file"], known["origin"]["line"]
                if file is None and self._base is not None and known["origin"]["bundle"] == self._base.profile:
                    return self._base(steps, value)
                if file is not None and not Path(file).resolve().is_relative_to(self._cache_dir.resolve()):
                    return None
                name = known["origin"]["bundle"] or "the bundle"
                place = f"{name} line {line}" if line else str(name)
        return place


def _value_at(plan: Any, steps: Steps) -> Any:
    """Return the value at some steps, which go into lists by the identity of modules and by position."""
    found = plan
    for index, step in enumerate(steps):
        if isinstance(found, Mapping):
            found = found.get(step, _NOTHING)
        elif isinstance(found, list) and steps[index - 1] in MODULE_SECTIONS:
            section = steps[index - 1]
            named = (each for each in found if isinstance(each, Mapping) and module_identity(section, each) == step)
            found = next(named, _NOTHING)
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return _NOTHING
    return found
