"""Checks the shape of a mount plan before any module is loaded."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amplifier_core.boundary import Boundary
from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS, MountPlan, PlanEntry, PlanProblem
from amplifier_core.utils.truncate import redact_secrets

from .contracts import CheckSummary, ValidationCheck, failed, passed

logger = logging.getLogger(__name__)


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
    OPTIONAL_SECTIONS: ClassVar[set[str]] = {*MODULE_SECTIONS, "agents"}
    REQUIRED_SESSION_FIELDS: ClassVar[set[str]] = {*SESSION_MEMBERS}
    REQUIRED_MODULE_SPEC_FIELDS: ClassVar[set[str]] = {"module"}

    def validate(self, mount_plan: Any) -> MountPlanValidationResult:
        """Return the checks of `mount_plan`, which may be anything at all; never raises."""
        result = MountPlanValidationResult()
        # A plan may hold objects that cannot be read or printed.
        with Boundary(logger, "a mount plan cannot be read: %s", level=logging.DEBUG) as boundary:
            for check in self._checks(mount_plan):
                result.add(check)
        if boundary.error is not None:
            result.add(failed("plan_readable", f"Mount plan cannot be read: {type(boundary.error).__name__}"))
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
        view = MountPlan(plan)
        wrong = {problem.place: problem for problem in view.problems() if problem.kind == "wrong-type"}
        yield from _type_checks("session", wrong)
        if "session" in plan and "session" not in wrong:
            yield from _missing_checks(view)
        entries = [*view.slots()]
        for section in (*SESSION_MEMBERS, *view.lists()):
            yield from (check for entry in entries if entry.section == section for check in _entry_checks(entry))
            yield from _type_checks(section, wrong)
            if plan.get(section) == [] and section in MODULE_SECTIONS:
                yield passed(f"{section}_empty", f"'{section}' section is empty")


def _missing_checks(view: MountPlan) -> Iterator[ValidationCheck]:
    for member in SESSION_MEMBERS:
        if member not in view.session:
            yield failed(f"session_{member}_present", f"Session section missing required '{member}' field")


def _type_checks(section: str, wrong: Mapping[str, PlanProblem]) -> Iterator[ValidationCheck]:
    if problem := wrong.get(section):
        title = "Session section" if section == "session" else f"'{section}' section"
        yield failed(f"{section}_type", f"{title} must be {problem.expected}, got {_type(problem.value)}")


def _entry_checks(entry: PlanEntry) -> Iterator[ValidationCheck]:
    path, spec = entry.place, entry.spec
    if not isinstance(entry.raw, dict) and not entry.is_by_name:
        yield failed(f"{path}_type", f"Module spec at {path} must be a dict, got {_type(entry.raw)}")
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
        yield from _config_checks(entry.config_place.removesuffix(".config"), spec["config"])
    if "source" in spec:
        yield from _source_checks(path, spec["source"])
    if not isinstance(spec.get("required", False), bool):
        yield failed(f"{path}_required_type", f"'required' at {path} must be a bool, got {_type(spec['required'])}")


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


def _printable(spec: Mapping[str, Any]) -> str:
    with Boundary(logger, "an entry of a mount plan cannot be printed: %s", level=logging.DEBUG):
        return repr(redact_secrets(spec))
    return f"a {_type(spec)} that cannot be printed"
