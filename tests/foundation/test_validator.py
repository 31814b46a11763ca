"""Whether a bundle is well formed, and complete enough to run."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.exceptions import BundleValidationError
from amplifier_foundation.validator import (
    BundleValidator,
    ValidationResult,
    validate_bundle,
    validate_bundle_completeness,
    validate_bundle_completeness_or_raise,
    validate_bundle_or_raise,
)

COMPLETE: dict[str, Any] = {
    "name": "complete",
    "session": {"orchestrator": "loop-basic", "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-mock"}],
}


def test_a_result_is_valid_until_it_has_an_error() -> None:
    result = ValidationResult()
    result.add_warning("w")
    assert (result.valid, result.errors, result.warnings) == (True, [], ["w"])

    result.add_error("e")
    assert (result.valid, result.errors) == (False, ["e"])


def test_a_complete_bundle_has_nothing_to_report() -> None:
    bundle = Bundle(**COMPLETE)

    assert validate_bundle(bundle) == ValidationResult()
    assert validate_bundle_completeness(bundle) == ValidationResult()
    validate_bundle_or_raise(bundle)
    validate_bundle_completeness_or_raise(bundle)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"name": ""}, "name"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{"module": "t"}, {"source": "s"}]}, "tools[1]"),
        ({"providers": [{"module": "p", "config": []}]}, "providers[0].config"),
        ({"hooks": [{"module": "h", "config": "x"}]}, "hooks[0].config"),
        ({"session": ["x"]}, "session"),
        ({"session": {"orchestrator": {"config": {}}}}, "session.orchestrator"),
        ({"session": {"context": 5}}, "session.context"),
        ({"agents": {"a": "x"}}, "agents.a"),
    ],
)
def test_what_is_wrong_is_an_error_with_its_place(fields: dict[str, Any], part: str) -> None:
    result = validate_bundle(Bundle(**{"name": "x", **fields}))

    assert not result.valid
    [error] = result.errors
    assert part in error


@pytest.mark.parametrize("module", [None, "loop-basic", {"module": "m"}, {"source": "s"}])
def test_a_session_module_is_a_name_or_a_mapping_with_module_or_source(module: Any) -> None:
    assert validate_bundle(Bundle(name="x", session={"orchestrator": module, "context": module})).valid


@pytest.mark.parametrize("config", [None, {}, {"x": 1}])
def test_a_config_is_a_mapping_or_nothing(config: Any) -> None:
    assert validate_bundle(Bundle(name="x", tools=[{"module": "t", "config": config}])).valid


def test_a_missing_context_file_is_a_warning_or_strictly_an_error(tmp_path: Path) -> None:
    (tmp_path / "here.md").write_text("x", encoding="utf-8")
    context = {"here": tmp_path / "here.md", "gone": tmp_path / "gone.md"}
    bundle = Bundle(name="x", base_path=tmp_path, context=context)

    lenient, strict = validate_bundle(bundle), BundleValidator(strict=True).validate(bundle)

    assert (lenient.valid, len(lenient.warnings), strict.valid, len(strict.errors)) == (True, 1, False, 1)
    assert str(tmp_path / "gone.md") in lenient.warnings[0]
    assert str(tmp_path / "gone.md") in strict.errors[0]
    assert validate_bundle(Bundle(name="x", context=context)).warnings == []


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"session": {}}, ["session", "orchestrator", "context"]),
        ({"session": {"context": "c"}}, ["orchestrator"]),
        ({"session": {"orchestrator": "o"}}, ["context"]),
        ({"providers": []}, ["provider"]),
        ({"session": "text"}, ["session", "orchestrator", "context"]),
        ({"name": ""}, ["name"]),
    ],
)
def test_what_a_session_needs_and_lacks_is_reported(fields: dict[str, Any], parts: list[str]) -> None:
    errors = validate_bundle_completeness(Bundle(**{**COMPLETE, **fields})).errors

    assert all(any(part in error for error in errors) for part in parts)


def test_the_raising_forms_name_every_error() -> None:
    bundle = Bundle(name="", tools=["x"])  # type: ignore[list-item]  # what the validator is for

    with pytest.raises(BundleValidationError, match="validation failed") as error:
        validate_bundle_or_raise(bundle)
    assert "; tools[0]" in str(error.value)

    with pytest.raises(BundleValidationError, match="incomplete for mounting") as incomplete:
        BundleValidator().validate_completeness_or_raise(bundle)
    assert "provider" in str(incomplete.value)


def test_an_empty_session_of_any_shape_is_no_session() -> None:
    assert validate_bundle(Bundle("x", session=[])).valid  # type: ignore[arg-type]
