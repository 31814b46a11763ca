"""Whether a bundle is well formed, and whether it is complete enough to run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from amplifier_core.mount_plan import SESSION_MEMBERS
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.exceptions import BundleValidationError


@dataclass
class ValidationResult:
    """What was found; `valid` as long as there is no error."""

    valid: bool = True
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_error(self, message: str) -> None:
        self.errors.append(message)
        self.valid = False

    def add_warning(self, message: str) -> None:
        self.warnings.append(message)


class BundleValidator:
    """Checks bundles. With `strict` a context file that is missing is an error instead of a warning."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict

    def validate(self, bundle: Bundle) -> ValidationResult:
        """Check that a bundle is well formed."""
        result = ValidationResult()
        if not bundle.name:
            result.add_error("the bundle has no name: write bundle: {name: my-bundle}")
        for error in _shape_errors(bundle):
            result.add_error(error)
        report_missing = result.add_error if self._strict else result.add_warning
        for name, path in bundle.context.items() if bundle.base_path else ():
            if not path.exists():
                report_missing(f"context file {name!r} does not exist: {path}")
        return result

    def validate_or_raise(self, bundle: Bundle) -> None:
        """Check that a bundle is well formed.

        Raises:
            BundleValidationError: it is not; the message has every error.
        """
        _raise_errors(self.validate(bundle), bundle, "validation failed")

    def validate_completeness(self, bundle: Bundle) -> ValidationResult:
        """Check that a bundle is well formed and names everything a session needs."""
        result = self.validate(bundle)
        session = bundle.session if isinstance(bundle.session, dict) else {}
        if not session:
            result.add_error("no session section: a session needs an orchestrator and a context manager")
        for member in SESSION_MEMBERS:
            if not session.get(member):
                result.add_error(f"session.{member} is missing: name a module there")
        if not bundle.providers:
            result.add_error("no provider: providers must name at least one module")
        return result

    def validate_completeness_or_raise(self, bundle: Bundle) -> None:
        """Check that a bundle is well formed and names everything a session needs.

        Raises:
            BundleValidationError: it does not; the message has every error.
        """
        _raise_errors(self.validate_completeness(bundle), bundle, "incomplete for mounting")


def validate_bundle(bundle: Bundle) -> ValidationResult:
    """Check that a bundle is well formed."""
    return BundleValidator().validate(bundle)


def validate_bundle_or_raise(bundle: Bundle) -> None:
    """Raise `BundleValidationError` unless a bundle is well formed."""
    BundleValidator().validate_or_raise(bundle)


def validate_bundle_completeness(bundle: Bundle) -> ValidationResult:
    """Check that a bundle is well formed and names everything a session needs."""
    return BundleValidator().validate_completeness(bundle)


def validate_bundle_completeness_or_raise(bundle: Bundle) -> None:
    """Raise `BundleValidationError` unless a bundle names everything a session needs."""
    BundleValidator().validate_completeness_or_raise(bundle)


def _shape_errors(bundle: Bundle) -> Iterator[str]:
    if bundle.session and not isinstance(bundle.session, dict):
        yield f"session must be a mapping, it is a {type(bundle.session).__name__}"
    for slot in bundle.view().slots():
        errors = _session_module_errors if slot.section in SESSION_MEMBERS else _entry_errors
        yield from errors(slot.raw, slot.place)
    for name, definition in bundle.agents.items():
        if not isinstance(definition, dict):
            yield f"agents.{name} must be a mapping, it is a {type(definition).__name__}"


def _entry_errors(entry: Any, place: str) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{place} must be a mapping, it is a {type(entry).__name__}: {entry!r}"
        return
    if not entry.get("module"):
        yield f"{place} has no 'module'"
    if entry.get("config") is not None and not isinstance(entry["config"], dict):
        yield f"{place}.config must be a mapping, it is a {type(entry['config']).__name__}"


def _session_module_errors(module: Any, place: str) -> Iterator[str]:
    if module is None or isinstance(module, str):
        return
    if not isinstance(module, dict):
        yield f"{place} must be a module's name or a mapping, it is a {type(module).__name__}"
    elif not (module.get("module") or module.get("source")):
        yield f"{place} needs 'module' or 'source'"


def _raise_errors(result: ValidationResult, bundle: Bundle, verdict: str) -> None:
    if not result.valid:
        raise BundleValidationError(f"bundle {bundle.name!r}: {verdict}: {'; '.join(result.errors)}")
