"""The rules of a mount plan, in either form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS, MountPlan, PlanEntry

_KNOWN = {"session", *SESSION_MEMBERS, *MODULE_SECTIONS, "agents"}
_LIMITS = ("injection_budget_per_turn", "injection_size_limit")

SourceCheck = Callable[[str, Any], str | None]
"""Takes a module ID and its source, and says what is wrong with the source, `None` when nothing is."""


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """One rule at one place of a plan; `severity` is `info` for a rule that is kept."""

    name: str
    message: str
    location: str = ""
    severity: Literal["info", "warning", "error"] = "error"


@dataclass(frozen=True)
class PlanReport:
    """The verdict on a plan: all checks, and those among them that are errors or warnings."""

    checks: tuple[PlanCheck, ...]

    @property
    def passed(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[PlanCheck, ...]:
        return tuple(check for check in self.checks if check.severity == "error")

    @property
    def warnings(self) -> tuple[PlanCheck, ...]:
        return tuple(check for check in self.checks if check.severity == "warning")


def validate_mount_plan(plan: Any, *, check_source: SourceCheck | None = None) -> PlanReport:
    """Check a plan against every rule; all breaches are reported."""
    if broken := tuple(_plan_rule(plan)):
        return PlanReport(broken)
    rules: dict[str, Iterator[PlanCheck]] = {
        "session": _session_rule(plan),
        "sections": _sections_rule(plan),
        "modules": _modules_rule(plan),
        "providers": _providers_rule(plan),
        "limits": _limits_rule(plan),
        "duplicates": _duplicates_rule(plan),
        "unknown-keys": _unknown_keys_rule(plan),
    }
    if check_source is not None:
        rules["sources"] = _sources_rule(plan, check_source)
    checks = [PlanCheck("plan", "The plan is a mapping", severity="info")]
    for name, found in rules.items():
        checks += list(found) or [PlanCheck(name, f"Every rule about {name} is kept", severity="info")]
    return PlanReport(tuple(checks))


def _plan_rule(plan: Any) -> Iterator[PlanCheck]:
    if not isinstance(plan, Mapping) or not plan:
        yield PlanCheck("plan", "Configuration is required")


def _session_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    session = plan.get("session")
    if not isinstance(session, Mapping):
        yield PlanCheck("session", f"session must be a mapping, got {_kind(session)}", "session")
        return
    for member in SESSION_MEMBERS:
        if not session.get(member):
            location = f"session.{member}"
            yield PlanCheck(f"session-{member}", f"Configuration must specify {location}", location)
    for entry in MountPlan(plan).member_slots():
        if isinstance(entry.raw, Mapping):
            yield from _entry_issues(entry, "error") if entry.raw else ()
        elif entry.is_by_name:
            yield from _source_type(entry)
        elif entry.raw:
            message = f"{entry.place} must be a string or a mapping, got {_kind(entry.raw)}"
            yield PlanCheck("wrong-type", message, entry.place)


def _sections_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    expected: dict[str, type] = {
        **dict.fromkeys(MODULE_SECTIONS, list),
        **dict.fromkeys(("agents", *SESSION_MEMBERS), dict),
    }
    for name, kind in expected.items():
        value = plan.get(name)
        if value is not None and not isinstance(value, kind):
            word = "list" if kind is list else "mapping"
            yield PlanCheck("wrong-type", f"{name} must be a {word}, got {_kind(value)}", name)
    for member in SESSION_MEMBERS:
        section = plan.get(member)
        if isinstance(section, Mapping) and not isinstance(section.get("config", {}), Mapping):
            yield PlanCheck("wrong-type", f"{member}.config must be a mapping", f"{member}.config")


def _modules_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    for entry in MountPlan(plan).listed_slots():
        if not isinstance(entry.raw, Mapping):
            yield PlanCheck("wrong-type", f"{entry.place} must be a mapping, got {_kind(entry.raw)}", entry.place)
        else:
            yield from _entry_issues(entry, "warning")


def _entry_issues(entry: PlanEntry, missing: Any) -> Iterator[PlanCheck]:
    place, module, config = entry.place, entry.spec.get("module"), entry.spec.get("config")
    if module is None or module == "":
        yield PlanCheck("module-missing", f"Module entry at {place} has no 'module'", place, severity=missing)
    elif not isinstance(module, str):
        yield PlanCheck("wrong-type", f"{place}.module must be a string, got {_kind(module)}", f"{place}.module")
    if config is not None and not isinstance(config, Mapping):
        yield PlanCheck("wrong-type", f"{entry.config_place} must be a mapping", entry.config_place)
    yield from _source_type(entry)


def _source_type(entry: PlanEntry) -> Iterator[PlanCheck]:
    if entry.source is not None and not isinstance(entry.source, str | Mapping):
        message = f"{entry.source_place} must be a string or a mapping, got {_kind(entry.source)}"
        yield PlanCheck("wrong-type", message, entry.source_place)


def _providers_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    if not plan.get("providers"):
        yield PlanCheck("providers-missing", "At least one provider must be configured", "providers")
    for module, count in MountPlan(plan).repeated_without_instance().items():
        message = f"{count} entries of {module} have no instance_id; at most one may lack it"
        yield PlanCheck("instance-id-missing", message, "providers")


def _limits_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    session = plan.get("session")
    for key in _LIMITS:
        value = session.get(key) if isinstance(session, Mapping) else None
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            yield PlanCheck(
                "wrong-type", f"session.{key} must be an integer ≥ 0 or null, got {value!r}", f"session.{key}"
            )


def _duplicates_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    for (section, module), count in Counter((e.section, e.module_id) for e in MountPlan(plan).entries()).items():
        if count > 1 and section != "providers":
            message = f"{section} names {module} {count} times"
            yield PlanCheck("duplicate-module", message, section, severity="warning")


def _unknown_keys_rule(plan: Mapping[str, Any]) -> Iterator[PlanCheck]:
    for key in plan:
        if key not in _KNOWN:
            yield PlanCheck("unknown-key", f"Unknown key '{key}' is ignored", str(key), severity="warning")


def _sources_rule(plan: Mapping[str, Any], check: SourceCheck) -> Iterator[PlanCheck]:
    for entry in MountPlan(plan).entries():
        problem = check(entry.module_id, entry.source) if entry.source else None
        if problem:
            yield PlanCheck("source-unresolved", problem, f"{entry.place}.source", severity="warning")


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
