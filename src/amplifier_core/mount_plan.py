"""Mount plans, read as values: this is the only file that knows how a plan is written.

A plan stays a plain `dict` wherever it is kept or passed on; `MountPlan(plan)` is a view of one, made where it is read.
Anything of a plan's shape can be viewed: a plan, the overlay of an agent, the sections of a profile or of a bundle.

The orchestrator and the context are written in one of two ways, which may be mixed in one plan; the three lists
`providers`, `tools` and `hooks` (`MODULE_SECTIONS`) hold mappings only:

    by entry    session: {orchestrator: {module: loop-basic, source: …, config: {…}}}
    by name     session: {orchestrator: loop-basic, orchestrator_source: …}   orchestrator: {config: {…}}

Reading. Every entry is a frozen `PlanEntry`, in the order in which modules are mounted:

    for entry in MountPlan(plan).entries():        # those that name a module; slots() has the malformed ones as well
        entry.place, entry.module_type, entry.module_id, entry.source, entry.config, entry.instance_id, entry.spec
    MountPlan(plan).find("tool-bash")              # the first entry of a module, or None; at("tools[2]") goes by place
    MountPlan(plan).lists()                        # {"providers": […], "tools": […], "hooks": […]}, as they stand there
    for name, overlay in MountPlan(plan).overlays():    # the agents that are mappings, each of a plan's shape itself

Checking. `problems()` yields what is wrong with the shape as values; the wording is up to the caller.

Changing. Nothing is changed in place: each of these returns a new `dict` that shares what it did not touch, and leaves
every entry in the form in which it was written.

    MountPlan(plan).replace(entry, {**entry.spec, "config": {…}})
    MountPlan(plan).map(lambda entry: {**entry.spec, "source": …})    # None takes an entry out
    MountPlan(plan).by_name(), MountPlan(plan).by_entry()             # the whole plan in one of the two forms
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple

SESSION_MEMBERS = ("orchestrator", "context")
"""The members of `session` that are modules; a member's module type has its name."""

MODULE_SECTIONS: Mapping[str, str] = MappingProxyType({"providers": "provider", "tools": "tool", "hooks": "hook"})
"""The lists of modules, and the type of the modules in each."""

PlanData = dict[str, Any]
"""A plan as it stands in a file and in a session."""

Spec = Mapping[str, Any]
"""A part of a plan: an entry, a section, a configuration. What is in it is for the one who wrote it to say."""

_ORDER = ("session", *SESSION_MEMBERS, *MODULE_SECTIONS, "agents")
_LIMITS = ("injection_budget_per_turn", "injection_size_limit")
_LIMIT_TYPES = (int, float, NoneType)
_BESIDE = ("module", "source")
_NOTHING: Spec = MappingProxyType({})
_MAPPINGS = (dict, Mapping)  # a dict is recognised without asking the abstract class
_UNTOUCHED: Spec = MappingProxyType({})


class PlanEntry(NamedTuple):
    """One module of a plan.

    `place` says where it stands (`session.context`, `tools[2]`), `section` in which part (`context`, `tools`), which
    is also its mount point. `raw` is what stands there, of whatever type; `spec` is the same as a mapping, put together
    when it is written by name, and empty when it is neither. `module_id` is empty when no module is named, `config`
    when there is none or it is not a mapping.
    """

    place: str
    section: str
    module_type: str
    module_id: str
    source: Any
    config: Spec
    instance_id: str | None
    spec: Spec
    raw: Any

    @property
    def is_by_name(self) -> bool:
        """True if it is a session's member that is written by name."""
        return isinstance(self.raw, str) and self.section in SESSION_MEMBERS

    @property
    def is_required(self) -> bool:
        """True if the session must not start without it; anything but a plain no counts as a yes."""
        return self.spec.get("required") not in (None, False)

    @property
    def config_place(self) -> str:
        """Where its configuration stands."""
        return f"{self.section if self.is_by_name else self.place}.config"

    @property
    def source_place(self) -> str:
        """Where its source stands."""
        return f"{self.place}_source" if self.is_by_name else f"{self.place}.source"

    @property
    def identity(self) -> str:
        """What makes two entries of a section one module: the ID, for a provider together with its instance."""
        is_instance = self.instance_id and self.section == "providers"
        return f"{self.module_id}/{self.instance_id}" if is_instance else self.module_id


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """What is wrong at one place of a plan.

    `unread` is what only the other form reads: an entry in `session` wins over a section beside it. `part` is the part
    of an entry that the problem is about (`module`, `config`, `source`, `instance_id`), empty when it is the entry
    or a section itself. `is_fatal` says that a session refuses to start with it; the rest costs a module at most.
    """

    kind: Literal["missing", "wrong-type", "unread"]
    place: str
    value: object = None
    expected: str = ""
    part: str = ""
    is_fatal: bool = False

    def __str__(self) -> str:
        if self.kind == "missing":
            return f"{self.place} is missing"
        if self.kind == "unread":
            return f"{self.place} is not read, because session.{self.place.partition('.')[0]} is an entry"
        return f"{self.place} must be {self.expected}, got {type(self.value).__name__}"


@dataclass(frozen=True, slots=True)
class MountPlan:
    """A view of a plan, or of anything that has a plan's shape."""

    data: Spec

    @property
    def session(self) -> Spec:
        """The `session` section; empty when there is none or it is not a mapping."""
        return _mapping(self.data.get("session"))

    @property
    def session_settings(self) -> dict[str, Any]:
        """What `session` holds beside its modules."""
        modules = {*SESSION_MEMBERS, *map(_source_key, SESSION_MEMBERS)}
        return {key: value for key, value in self.session.items() if key not in modules}

    def lists(self) -> dict[str, list[Any]]:
        """Return the lists of modules by section, as they stand there; one that is absent or not a list is empty."""
        return {section: self._list(section) for section in MODULE_SECTIONS}

    def slots(self) -> Iterator[PlanEntry]:
        """Yield what stands where a module can stand, well formed or not."""
        yield from self.member_slots()
        yield from self.listed_slots()

    def member_slots(self) -> Iterator[PlanEntry]:
        """Yield what `session` holds as orchestrator and context, well formed or not."""
        for member in SESSION_MEMBERS:
            if member in self.session:
                yield self._member(member)

    def listed_slots(self) -> Iterator[PlanEntry]:
        """Yield what the lists of modules hold, well formed or not."""
        for section, module_type in MODULE_SECTIONS.items():
            for index, raw in enumerate([*self._list(section)]):  # mounting them may change the plan meanwhile
                yield _entry(f"{section}[{index}]", section, module_type, raw, _mapping(raw))

    def entries(self, *, section: str | None = None) -> Iterator[PlanEntry]:
        """Yield the entries that name a module, of one section or of all, in the order in which modules are mounted."""
        return (entry for entry in self.slots() if entry.module_id and section in (None, entry.section))

    def find(self, module_id: str, *, section: str | None = None) -> PlanEntry | None:
        """Return the first entry of a module, in one section or in all."""
        return next((entry for entry in self.entries(section=section) if entry.module_id == module_id), None)

    def at(self, place: str) -> PlanEntry | None:
        """Return what stands at a place such as `session.context` or `tools[2]`, well formed or not."""
        return next((entry for entry in self.slots() if entry.place == place), None)

    def overlays(self) -> Iterator[tuple[str, "MountPlan"]]:
        """Yield the agents by name, each as something of a plan's shape; what is not a mapping is left out."""
        agents = self.data.get("agents")
        for name, agent in agents.items() if isinstance(agents, Mapping) else ():
            if isinstance(agent, Mapping):
                yield name, MountPlan(agent)

    def repeated_without_instance(self) -> dict[str, int]:
        """Return the provider modules of which more than one entry has no `instance_id`, and how many."""
        specs = map(_mapping, self._list("providers"))
        unnamed = (_text(spec.get("module")) for spec in specs if not _text(spec.get("instance_id")))
        return {module_id: count for module_id, count in Counter(unnamed).items() if module_id and count > 1}

    def problems(self) -> Iterator[PlanProblem]:
        """Yield what is wrong with the plan's shape, from top to bottom."""
        session = self.data.get("session", _NOTHING)
        if not isinstance(session, _MAPPINGS):
            yield PlanProblem("wrong-type", "session", session, "a dict", is_fatal=True)
        else:
            for member in SESSION_MEMBERS:
                yield from self._member_problems(member)
            for name in _LIMITS:
                if not isinstance(session.get(name), _LIMIT_TYPES):
                    yield PlanProblem("wrong-type", f"session.{name}", session[name], "a number or None", is_fatal=True)
        for member in SESSION_MEMBERS:
            yield from self._beside_problems(member)
        for section in MODULE_SECTIONS:
            if not isinstance(found := self.data.get(section, []), list):
                yield PlanProblem("wrong-type", section, found, "a list", is_fatal=True)
        for entry in self.listed_slots():
            yield from _entry_problems(entry)

    def replace(self, entry: PlanEntry, spec: Spec | None) -> PlanData:
        """Return the plan with another spec in an entry's place, or without the entry."""
        return self._with({entry.place: spec})

    def map(self, change: Callable[[PlanEntry], Spec | None], *, section: str | None = None) -> PlanData:
        """Return the plan with what `change` makes of every entry, in one section or in all; None takes it out."""
        return self._with({entry.place: change(entry) for entry in self.entries(section=section)})

    def by_name(self) -> PlanData:
        """Return the plan with orchestrator and context written by name."""
        plan = {**self.data, "session": dict(self.session)}
        for entry in self.entries():
            if entry.section in SESSION_MEMBERS and not entry.is_by_name:
                spec = {key: value for key, value in entry.spec.items() if key != "config" or value}
                _write_by_name(plan, entry.section, spec)
        return _ordered(plan)

    def by_entry(self) -> PlanData:
        """Return the plan with orchestrator and context as entries, without what only the other form reads."""
        plan = {**self.data, "session": dict(self.session)}
        for entry in self.entries():
            if entry.section in SESSION_MEMBERS:
                plan["session"][entry.section] = dict(entry.spec)
                plan["session"].pop(_source_key(entry.section), None)
                plan.pop(entry.section, None)
        return _ordered(plan)

    def _list(self, section: str) -> list[Any]:
        found = self.data.get(section)
        return found if isinstance(found, list) else []

    def _member(self, member: str) -> PlanEntry:
        raw = self.session[member]
        spec = _mapping(raw)
        if isinstance(raw, str):
            key = _source_key(member)
            source = {"source": self.session[key]} if key in self.session else {}
            section = {key: value for key, value in _mapping(self.data.get(member)).items() if key not in _BESIDE}
            spec = {"module": raw, **source, **section}
        return _entry(f"session.{member}", member, member, raw, spec)

    def _member_problems(self, member: str) -> Iterator[PlanProblem]:
        entry = self._member(member) if member in self.session else None
        place = f"session.{member}"
        if entry is None or (isinstance(entry.raw, str | dict) and not entry.raw):
            yield PlanProblem("missing", place, entry and entry.raw, is_fatal=True)
        elif not isinstance(entry.raw, str | dict):
            yield PlanProblem("wrong-type", place, entry.raw, "a string or a dict", is_fatal=True)
        else:
            yield from _entry_problems(entry)

    def _beside_problems(self, member: str) -> Iterator[PlanProblem]:
        """Yield what is wrong with the section of a member that is written by name."""
        section, written = self.data.get(member, {}), self.session.get(member)
        is_read = not isinstance(written, _MAPPINGS)
        if not isinstance(section, dict):
            yield PlanProblem("wrong-type", member, section, "a dict", is_fatal=is_read)
        elif not is_read and not _has(written, section):  # what the entry repeats is not lost
            yield PlanProblem("unread", member, section)

    def _with(self, specs: Mapping[str, Spec | None]) -> PlanData:
        """Return the plan with other specs at some places; those that are None are taken out."""
        plan = dict(self.data)
        if isinstance(plan.get("session"), Mapping):
            plan["session"] = dict(plan["session"])
        kept: dict[str, list[Any]] = {section: [] for section in MODULE_SECTIONS if isinstance(plan.get(section), list)}
        for entry in self.slots():
            spec = specs.get(entry.place, _UNTOUCHED)
            if entry.section in SESSION_MEMBERS:
                if spec is not _UNTOUCHED:
                    _write_member(plan, entry, spec)
            elif spec is not None:
                kept[entry.section].append(entry.raw if spec is _UNTOUCHED else dict(spec))
        return {**plan, **kept}


def _source_key(member: str) -> str:
    return f"{member}_source"


def _has(whole: object, part: object) -> bool:
    """True if a value has everything that another one has, key by key."""
    if isinstance(whole, _MAPPINGS) and isinstance(part, _MAPPINGS):
        return all(key in whole and _has(whole[key], value) for key, value in part.items())
    return whole == part


def _mapping(value: object) -> Spec:
    return value if isinstance(value, _MAPPINGS) else _NOTHING


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _entry(place: str, section: str, module_type: str, raw: object, spec: Spec) -> PlanEntry:
    module_id, instance_id = _text(spec.get("module")), _text(spec.get("instance_id")) or None
    config = _mapping(spec.get("config"))
    return PlanEntry(place, section, module_type, module_id, spec.get("source"), config, instance_id, spec, raw)


def _entry_problems(entry: PlanEntry) -> Iterator[PlanProblem]:
    if not isinstance(entry.raw, dict) and not entry.is_by_name:
        yield PlanProblem("wrong-type", entry.place, entry.raw, "a dict", is_fatal=True)
        return
    spec = entry.spec
    if not spec.get("module"):
        yield PlanProblem("missing", f"{entry.place}.module", spec.get("module"), part="module")
    for part in ("module", "instance_id"):
        if (value := spec.get(part)) and not isinstance(value, str):
            yield PlanProblem("wrong-type", f"{entry.place}.{part}", value, "a string", part, is_fatal=True)
    if (config := spec.get("config")) is not None and not isinstance(config, _MAPPINGS):
        yield PlanProblem("wrong-type", entry.config_place, config, "a dict", "config")
    if entry.source is not None and not isinstance(entry.source, str):
        yield PlanProblem("wrong-type", entry.source_place, entry.source, "a string", "source")
    if (required := spec.get("required")) is not None and not isinstance(required, bool):
        yield PlanProblem("wrong-type", f"{entry.place}.required", required, "true or false", "required")


def _write_member(plan: PlanData, entry: PlanEntry, spec: Spec | None) -> None:
    member = entry.section
    if spec is None:
        del plan["session"][member]
        if entry.is_by_name:
            plan["session"].pop(_source_key(member), None)
            plan.pop(member, None)
    elif entry.is_by_name:
        _write_by_name(plan, member, spec)
    else:
        plan["session"][member] = dict(spec)


def _write_by_name(plan: PlanData, member: str, spec: Spec) -> None:
    plan["session"][member] = spec["module"]
    plan["session"].pop(_source_key(member), None)
    if spec.get("source") is not None:
        plan["session"][_source_key(member)] = spec["source"]
    plan.pop(member, None)
    if section := {key: value for key, value in spec.items() if key not in _BESIDE}:
        plan[member] = section


def _ordered(plan: PlanData) -> PlanData:
    """Return a plan with its keys in their usual order, the session's members beside their sources."""
    members = [key for member in SESSION_MEMBERS for key in (member, _source_key(member))]
    session = plan["session"]
    plan["session"] = {**{key: session[key] for key in members if key in session}, **session}
    return {**{key: plan[key] for key in _ORDER if key in plan}, **plan}
