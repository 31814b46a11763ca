"""Checks the shape of a mount plan before any module is loaded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amplifier_core.utils.truncate import redact_secrets

from .results import CheckSummary, ValidationCheck, failed, passed


@dataclass
class MountPlanValidationResult(CheckSummary):
    """The verdict on one mount plan."""

    checks: list[ValidationCheck] = field(default_factory=list)

    def format_errors(self) -> str:
        """Return the errors as a numbered list for a terminal."""
        if not self.errors:
            return "No errors"
        lines = [f"  {number}. [{error.name}] {error.message}" for number, error in enumerate(self.errors, 1)]
        return "\n".join(["Mount Plan Validation Failed:", "", *lines, "", f"Total: {len(lines)} error(s)"])


class MountPlanValidator:
    """Tells what is wrong with a mount plan; it knows nothing about the modules the plan names."""

    REQUIRED_SECTIONS: ClassVar[set[str]] = {"session"}
    OPTIONAL_SECTIONS: ClassVar[set[str]] = {"providers", "tools", "hooks", "agents"}
    REQUIRED_SESSION_FIELDS: ClassVar[set[str]] = {"orchestrator", "context"}
    REQUIRED_MODULE_SPEC_FIELDS: ClassVar[set[str]] = {"module"}

    def validate(self, mount_plan: Any) -> MountPlanValidationResult:
        """Return the checks of `mount_plan`, which may be anything at all; never raises."""
        result = MountPlanValidationResult()
        try:
            for check in self._checks(mount_plan):
                result.add(check)
        except Exception as exc:  # noqa: BLE001 - a plan may hold objects that cannot be read or printed
            result.add(failed("plan_readable", f"Mount plan cannot be read: {type(exc).__name__}"))
        return result

    def _checks(self, plan: Any) -> Iterator[ValidationCheck]:
        if not isinstance(plan, dict):
            yield failed("root_type", f"Mount plan must be a dict, got {_type(plan)}")
            return
        yield passed("root_type", "Mount plan is a dict")
        if "session" in plan:
            yield passed("session_present", "Session section present")
        else:
            yield failed("session_present", "Mount plan missing required 'session' section")
        known = self.REQUIRED_SECTIONS | self.OPTIONAL_SECTIONS | self.REQUIRED_SESSION_FIELDS
        unknown = sorted((key for key in plan if key not in known), key=str)
        if unknown:
            yield failed("unknown_sections", f"Unknown sections will be ignored: {unknown}", "warning")
        if "session" in plan:
            yield from _session_checks(plan["session"])
        for slot in ("orchestrator", "context"):
            if slot in plan:
                yield from _slot_section_checks(slot, plan[slot])
        for section in ("providers", "tools", "hooks"):
            if section in plan:
                yield from _module_list_checks(section, plan[section])


def _session_checks(session: Any) -> Iterator[ValidationCheck]:
    if not isinstance(session, dict):
        yield failed("session_type", f"Session section must be a dict, got {_type(session)}")
        return
    for slot in ("orchestrator", "context"):
        path = f"session.{slot}"
        if slot not in session:
            yield failed(f"session_{slot}_present", f"Session section missing required '{slot}' field")
        elif isinstance(session[slot], str):
            yield _module_check(path, session[slot])
        else:
            yield from _spec_checks(path, session[slot])
        if f"{slot}_source" in session:
            yield from _source_checks(path, session[f"{slot}_source"])


def _slot_section_checks(slot: str, section: Any) -> Iterator[ValidationCheck]:
    """Check the section that configures an orchestrator or context which the session names by a string."""
    if not isinstance(section, dict):
        yield failed(f"{slot}_type", f"'{slot}' section must be a dict, got {_type(section)}")
    elif "config" in section:
        yield from _config_checks(slot, section["config"])


def _module_list_checks(section: str, specs: Any) -> Iterator[ValidationCheck]:
    if not isinstance(specs, list):
        yield failed(f"{section}_type", f"'{section}' section must be a list, got {_type(specs)}")
    elif not specs:
        yield passed(f"{section}_empty", f"'{section}' section is empty")
    else:
        for index, spec in enumerate(specs):
            yield from _spec_checks(f"{section}[{index}]", spec)


def _spec_checks(path: str, spec: Any) -> Iterator[ValidationCheck]:
    if not isinstance(spec, dict):
        yield failed(f"{path}_type", f"Module spec at {path} must be a dict, got {_type(spec)}")
        return
    if "module" in spec:
        yield _module_check(path, spec["module"])
    else:
        yield failed(
            f"{path}_module_required",
            f"Module spec at {path} missing required 'module' field.\n"
            f"  Got: {_printable(spec)}\n"
            "  Expected: {'module': 'module-name', 'source': '...', 'config': {...}}",
        )
    if "config" in spec:
        yield from _config_checks(path, spec["config"])
    if "source" in spec:
        yield from _source_checks(path, spec["source"])


def _module_check(path: str, module: Any) -> ValidationCheck:
    if not isinstance(module, str):
        return failed(f"{path}_module_type", f"Module path at {path} must be a string, got {_type(module)}")
    if not module:
        return failed(f"{path}_module_empty", f"Module path at {path} cannot be empty")
    return passed(f"{path}_module_valid", f"Module path '{module}' at {path} is valid")


def _config_checks(path: str, config: Any) -> Iterator[ValidationCheck]:
    if not isinstance(config, dict):
        yield failed(f"{path}_config_type", f"Config at {path} must be a dict, got {_type(config)}")


def _source_checks(path: str, source: Any) -> Iterator[ValidationCheck]:
    if not isinstance(source, str):
        yield failed(f"{path}_source_type", f"Source at {path} must be a string, got {_type(source)}")


def _type(value: object) -> str:
    return type(value).__name__


def _printable(spec: dict[Any, Any]) -> str:
    try:
        return repr(redact_secrets(spec))
    except Exception:  # noqa: BLE001 - a spec may hold itself, or objects that cannot be printed
        return f"a {_type(spec)} that cannot be printed"
