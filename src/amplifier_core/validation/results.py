"""Checks and what can be said about a list of them."""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass
class ValidationCheck:
    """One thing that was looked at, and the verdict."""

    name: str
    passed: bool
    message: str
    severity: Severity


class CheckSummary:
    """What can be said about a list of checks."""

    checks: list[ValidationCheck]

    @property
    def passed(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> list[ValidationCheck]:
        return [check for check in self.checks if not check.passed and check.severity == "error"]

    @property
    def warnings(self) -> list[ValidationCheck]:
        return [check for check in self.checks if not check.passed and check.severity == "warning"]

    def add(self, check: ValidationCheck) -> None:
        self.checks.append(check)

    def summary(self) -> str:
        verdict = "PASSED" if self.passed else "FAILED"
        passed = sum(check.passed for check in self.checks)
        counts = f"({len(self.errors)} errors, {len(self.warnings)} warnings)"
        return f"{verdict}: {passed}/{len(self.checks)} checks passed {counts}"


@dataclass
class ValidationResult(CheckSummary):
    """The verdict on one module."""

    module_type: str
    module_path: str
    checks: list[ValidationCheck] = field(default_factory=list)


def passed(name: str, message: str, severity: Severity = "info") -> ValidationCheck:
    return ValidationCheck(name, True, message, severity)


def failed(name: str, message: str, severity: Severity = "error") -> ValidationCheck:
    return ValidationCheck(name, False, message, severity)
