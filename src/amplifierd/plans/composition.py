"""A bundle as a session of this home runs it: over what a profile gives it, and behind the home's own guards.

Most published bundles leave something to the application. What a bundle does not say comes from the profile that new
sessions have: the orchestrator, the context and the providers that it lacks. A bundle with neither a session nor an
instruction is a behaviour, and runs on top of the whole profile. What the bundle says wins over the profile, except
for the guards, which it can only tighten.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_core.mount_plan import SESSION_MEMBERS, MountPlan, PlanEntry
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.model import with_policy
from amplifier_foundation.dicts.merge import deep_merge, module_identity
from amplifier_foundation.provenance import Layer, parse_path
from amplifier_system.permission_levels import chosen_level, within_default
from amplifier_system.policy import merge_policies
from amplifier_system.threads import in_thread
from amplifierd.exceptions import ProfileError
from amplifierd.identifiers import ProfileId
from amplifierd.issues import ON_PROFILE
from amplifierd.paths import Paths
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.installed_modules import installed_modules
from amplifierd.profiles.builds.origins import INSTRUCTION, at_home, origin_at, single_values
from amplifierd.profiles.builds.resources import replaced_in, tell_replaced, without_source
from amplifierd.profiles.documents.inheritance import MergedProfile, narrow_level

from .guards import (
    GUARDS,
    Refusal,
    confined,
    guard_of,
    guarded_agents,
    own_guards,
    tightened,
    tightening,
    without_guards,
)
from .runtime_values import is_display

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Composition:
    """A composed bundle. `bundle` is what is prepared, `whole` what explains the plan, `base` the profile below it.

    `given` names the parts that are the profile's, `refusals` what the bundle wanted of the guards and does not get,
    `replaced` the installed modules that the settings put in the place of its sources, `replaced_sources` these sources
    by module, and `shown_here` the display modules that are left out.
    """

    bundle: Bundle
    whole: Bundle
    base: Build | None
    plan: dict[str, Any]
    paths: Paths
    is_behaviour: bool = False
    given: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    replaced: tuple[str, ...] = ()
    replaced_sources: Mapping[str, str] = field(default_factory=dict)
    shown_here: tuple[str, ...] = ()

    @property
    def base_profile(self) -> str | None:
        return str(self.base.profile_id) if self.base is not None else None

    @property
    def fingerprint(self) -> str:
        """The same for compositions that need the same modules: what a bundle says, and over which build."""
        own = self.bundle
        said = [own.to_mount_plan(), own.base_path, own.source_base_paths, self.base and self.base.path]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def remarks(self) -> list[dict[str, str]]:
        """What a person should know before the bundle runs."""
        found = [{"code": "include-left-out", "message": text} for text in self.bundle.left_out]
        if self.is_behaviour:
            text = (
                f"{self.bundle.name or 'the bundle'} has neither a session nor an instruction: it runs on top of the "
            )
            found.append({"code": ON_PROFILE, "message": f"{text}profile {self.base_profile}"})
        return found

    @property
    def notes(self) -> list[str]:
        """What came from where, and what did not count, in words."""
        found = [remark["message"] for remark in self.remarks]
        if self.given and not self.is_behaviour:
            found.append(f"{', '.join(self.given)}: from the profile {self.base_profile}")
        found += [f"{refusal}: only files of the home's config can loosen a guard" for refusal in self.refusals]
        found += [f"{module_id} is left out: the terminal and the page show it" for module_id in self.shown_here]
        return [*found, *self.replaced, *self.bundle.doubts]

    def explain(self, key: str) -> dict[str, Any]:
        """Say where a value of the plan comes from: `{value, origin{profile, file, line}, overrode[]}`.

        Raises:
            KeyError: the plan has no such value.
        """
        if key == INSTRUCTION and self.is_behaviour and self.base is not None:
            return {"value": self.base.instruction(), **self._of_base(key)}
        found = self.whole.explain(key)
        origin = found["origin"]
        member = next((name for name in SESSION_MEMBERS if key.startswith(f"session.{name}.")), None)
        if origin["bundle"] is None and member is not None:  # written by name, so it has no line of its own
            with suppress(KeyError):
                origin = self.whole.explain(f"session.{member}")["origin"]
        return {
            "value": found["value"],
            "origin": self._told(origin, key),
            "overrode": [{**old, "origin": self._told(old["origin"], key)} for old in found["overrode"]],
        }

    def explain_all(self, plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Say the same of every single value of a plan that was made from this; what differs came with the request."""
        keys = [INSTRUCTION] if self.bundle.instruction or self.is_behaviour else []
        found = {key: self.explain(key) for key in keys}
        for key, value in single_values(plan).items():
            try:
                known = self.explain(key)
            except KeyError:
                known = {"value": None, "origin": None, "overrode": []}
            found[key] = known if known["value"] == value else {"value": value, "origin": None, "overrode": []}
        return found

    def _told(self, origin: Mapping[str, Any], key: str) -> dict[str, Any]:
        if self.base is not None and origin["file"] is None and origin["bundle"] == self.base_profile:
            known: dict[str, Any] = self._of_base(key)["origin"]
            return known
        return {"profile": origin["bundle"], "file": origin["file"], "line": origin["line"]}

    def _of_base(self, key: str) -> dict[str, Any]:
        assert self.base is not None
        stored = origin_at(self.base.origins(), parse_path(key))
        overrode = [{**old, "origin": at_home(old["origin"], self.paths)} for old in stored["overrode"]]
        return {"origin": at_home(stored["origin"], self.paths), "overrode": overrode}


class Composer:
    """Composes the bundles of one home; the command, the daemon and the page all ask it.

    `can_answer` says of a provider whether it has the key that it needs. `replaced` are the modules whose installed
    version the settings put in the place of any source.
    """

    def __init__(
        self,
        paths: Paths,
        profiles: Profiles,
        default_profile: Callable[[], Awaitable[ProfileId]],
        *,
        can_answer: Callable[[PlanEntry], bool],
        replaced: Collection[str] = (),
    ) -> None:
        self._paths, self._profiles, self._default_profile = paths, profiles, default_profile
        self._can_answer, self._replaced = can_answer, replaced

    async def compose(
        self, bundle: Bundle, profile: ProfileId | str | None = None, build_id: str | None = None
    ) -> Composition:
        """Return a loaded bundle as a session runs it, over a profile, by default the one of new sessions.

        `build_id` is the build of that profile which a session began with.

        Raises:
            BundleError: the bundle cannot be used.
            ProfileError: the bundle needs the profile, which cannot be used.
        """
        own = copy(bundle)
        own.agents, own.context = dict(bundle.agents), dict(bundle.context)
        own._pending_context = dict(bundle._pending_context)
        await in_thread(lambda stop: own.load_agent_metadata())
        own.resolve_pending_context()
        base = await self._base(own, profile, build_id)
        return await in_thread(lambda stop: self._composed(own, base))

    async def _base(self, own: Bundle, profile: ProfileId | str | None, build_id: str | None) -> Build | None:
        try:
            chosen = ProfileId.parse(profile) if profile is not None else await self._default_profile()
            known = await self._profiles.open_build(chosen, build_id) if build_id is not None else None
            return known or await self._profiles.ensure(chosen)
        except AmplifierError as error:
            if _lacks(own):
                raise
            logger.warning("bundle %r runs without the profile of new sessions: %s", own.name, error)
            return None

    def _composed(self, bundle: Bundle, base: Build | None) -> Composition:
        plan = base.plan() if base is not None else {}
        shipped = self._shipped_guards(plan)
        guards = own_guards(plan, shipped.sections if shipped is not None else {})
        own, refusals, shown_here = self._guarded(bundle, guards)
        known = tell_replaced(own.view(), self._replaced)
        named = replaced_in(own.view(), self._replaced)
        if known:
            own = own.revised(own.layers(), **own.view().map(without_source(self._replaced)))
        is_behaviour = _is_behaviour(bundle)
        part = plan if is_behaviour else _what_lacks(own, plan)
        found = [guard for guard in guards if MountPlan(plan).find(guard["module"], section="hooks") is not None]
        part = {**part, "hooks": [*found, *without_guards(part.get("hooks") or [])]}
        is_mute = not any(map(self._can_answer, own.view().entries(section="providers")))
        providers = [*_below_providers(part.get("providers") or [], own, is_mute=is_mute)]
        below = _as_bundle({**part, "providers": providers}, base, _guard_layers(shipped))
        below.hooks = [*self._tightened(bundle, guards), *without_guards(below.hooks)]
        whole = below.compose(own)
        result = MountPlan(MountPlan(whole.to_mount_plan()).by_entry()).map(without_source(named, of_identity=True))
        result["session"] = with_policy(result["session"], below.session, own.session)
        narrow_level(result, {"session": below.session}, {"session": own.session})
        return Composition(
            own,
            whole,
            base,
            deepcopy(result),
            self._paths,
            is_behaviour=is_behaviour,
            given=tuple(_given(below)),
            refusals=tuple(refusals),
            replaced_sources=named,
            replaced=tuple(f"{issue.code}: {issue.message}" for issue in known),
            shown_here=tuple(shown_here),
        )

    def _shipped_guards(self, plan: Mapping[str, Any]) -> MergedProfile | None:
        """Return the profile whose guards stand in for those that a profile does without."""
        if any(MountPlan(plan).find(guard, section="hooks") is None for guard in GUARDS):
            with suppress(ProfileError):
                return self._profiles.merged(_WITH_GUARDS)
        return None

    def _guarded(self, bundle: Bundle, guards: Sequence[Mapping[str, Any]]) -> tuple[Bundle, list[Refusal], list[str]]:
        """Return a bundle without guards and displays of its own, and what that keeps from it."""
        refusals = [refusal for guard in guards for refusal in self._refusals(bundle, guard)]
        agents, refused = guarded_agents(bundle.agents, self._tightened(bundle, guards))
        hooks, shown_here = _with_own_display(without_guards(bundle.hooks))
        layers = [layer if self._is_own(layer) else _tightening_layer(layer) for layer in bundle.layers()]
        tools, unconfined = (bundle.tools, []) if self._is_own_file(bundle._file) else confined(bundle.tools)
        tools, providers = without_guards(tools), without_guards(bundle.providers)
        session = MountPlan({"session": bundle.session}).by_entry()["session"] if bundle.session else {}
        sections = {"session": session, "providers": providers, "tools": tools, "hooks": hooks, "agents": agents}
        own = bundle.revised(layers, **sections)
        return own, [*dict.fromkeys((*refusals, *refused, *unconfined))], shown_here

    def _tightened(self, bundle: Bundle, guards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for guard in guards:
            for layer in bundle.layers():
                entries = [entry for entry in _hooks_of(layer) if guard_of(entry) == guard["module"]]
                if self._is_own(layer):
                    configs = [entry.get("config") or {} for entry in entries]
                    for config in configs:
                        guard = {**guard, "config": deep_merge(guard.get("config") or {}, config)}
                else:
                    guard, _ = tightened(guard, entries)
            found.append(dict(guard))
        return found

    def _refusals(self, bundle: Bundle, guard: Mapping[str, Any]) -> list[Refusal]:
        foreign = (entry for layer in bundle.layers() if not self._is_own(layer) for entry in _hooks_of(layer))
        return tightened(guard, [*foreign])[1]

    def _is_own(self, layer: Layer) -> bool:
        """True for what stands in the home's configuration, where a person may loosen a guard."""
        return self._is_own_file(layer.file)

    def _is_own_file(self, file: Path | None) -> bool:
        return file is not None and file.resolve().is_relative_to(self._paths.config.resolve())


_WITH_GUARDS = ProfileId("foundation", "base")


def _is_behaviour(bundle: Bundle) -> bool:
    return not bundle.instruction and not any(_has_member(bundle, member) for member in SESSION_MEMBERS)


def _has_member(bundle: Bundle, member: str) -> bool:
    entry = MountPlan({"session": bundle.session}).at(f"session.{member}")
    return entry is not None and bool(entry.module_id)


def _providers_of(bundle: Bundle) -> list[dict[str, Any]]:
    return [dict(entry.spec) for entry in bundle.view().entries(section="providers")]


def _lacks(bundle: Bundle) -> bool:
    """True for a bundle that cannot run by itself."""
    return not _providers_of(bundle) or not all(_has_member(bundle, member) for member in SESSION_MEMBERS)


def _what_lacks(own: Bundle, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a profile's plan that a bundle with a session or an instruction leaves to the application."""
    whole = MountPlan(plan).session
    session = {member: whole[member] for member in SESSION_MEMBERS if not _has_member(own, member) and member in whole}
    if policy := whole.get("policy"):
        session["policy"] = merge_policies(None, policy, may_widen=False)
    if level := within_default(chosen_level(whole.get("permission_level"))):
        session["permission_level"] = level
    return {"session": session, "providers": plan.get("providers") or []}


def _as_bundle(part: Mapping[str, Any], base: Build | None, guards: Sequence[Layer]) -> Bundle:
    """Return a part of a profile's plan as a bundle without a name."""
    sections = deepcopy(dict(part))
    name = str(base.profile_id) if base is not None else ""
    bundle = Bundle("", **{key: sections[key] for key in _SECTIONS if sections.get(key)})
    return bundle.revised([*guards, Layer(name, None, sections)])


def _guard_layers(shipped: MergedProfile | None) -> list[Layer]:
    """Return what a profile's files say about guards."""
    found = []
    for layer in shipped.layers if shipped is not None else ():
        hooks = [entry for entry in _hooks_of(layer) if guard_of(entry)]
        found.append(replace(layer, data={"hooks": hooks}))
    return found


_SECTIONS = ("session", "providers", "tools", "hooks", "agents", "spawn")


_LAST = 1000  # behind whatever priority a bundle gives its own


def _below_providers(providers: Sequence[Mapping[str, Any]], own: Bundle, *, is_mute: bool) -> Iterator[dict[str, Any]]:
    """Yield a profile's providers as a bundle's go over them: all if it has none, else those that it configures.

    One whose code the bundle replaces gets nothing of what the profile has for it: that was meant for other code. If
    no provider of the bundle has a key here (`is_mute`), the others are there too, and asked last.
    """
    named = {module_identity(entry): entry for entry in _providers_of(own)}
    for entry in providers:
        instance = entry.get("instance_id")
        spec = {**entry, **({"id": instance} if instance else {})}
        over = named.get(module_identity(spec))
        if not named or (over is not None and not over.get("source")):
            yield spec
        elif over is None and is_mute:
            config = spec.get("config") or {}
            yield {**spec, "config": {**config, "priority": _LAST + config.get("priority", 100)}}


def _given(below: Bundle) -> Iterator[str]:
    """Yield the parts that a bundle has from the profile below it."""
    yield from (member for member in SESSION_MEMBERS if member in below.session)
    if below.providers:
        yield "providers"


def _with_own_display(hooks: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return hooks in which those that show and name sessions are ours, and which are left out for want of one."""
    installed = installed_modules()
    kept, left_out = [], []
    for entry in hooks:
        if not is_display(str(entry.get("module"))):
            kept.append(dict(entry))
        elif installed.find(str(entry["module"])) is not None:
            kept.append({key: value for key, value in entry.items() if key != "source"})
        else:
            left_out.append(str(entry["module"]))
    return kept, left_out


def _hooks_of(layer: Layer) -> list[Any]:
    return [] if layer.root else [entry.spec for entry in MountPlan(layer.data).entries(section="hooks")]


def _tightening_layer(layer: Layer) -> Layer:
    """Return a layer without what it does not get of the guards."""
    if not any(guard_of(entry) for entry in _hooks_of(layer)):
        return layer
    hooks = []
    for entry in _hooks_of(layer):
        if (guard := guard_of(entry)) is None:
            hooks.append(entry)
        elif kept := tightening(guard, entry.get("config")):
            hooks.append({"module": guard, "config": kept})
    return replace(layer, data={**layer.data, "hooks": hooks})
