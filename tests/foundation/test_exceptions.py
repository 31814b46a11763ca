"""Errors of the foundation: one tree, and facts as attributes."""

import pytest

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.exceptions import (
    REF_RESOLUTION_REASONS,
    BundleDependencyError,
    BundleError,
    BundleLoadError,
    BundleNotFoundError,
    BundleValidationError,
    RefResolutionError,
)


@pytest.mark.parametrize(
    "kind", [BundleNotFoundError, BundleLoadError, BundleValidationError, BundleDependencyError, RefResolutionError]
)
def test_whoever_catches_bundle_errors_catches_all(kind: type[BundleError]) -> None:
    assert issubclass(kind, BundleError)
    assert issubclass(kind, AmplifierError)
    assert str(kind("what is wrong")) == "what is wrong"


def test_a_reference_error_is_a_source_that_was_not_found_and_says_why() -> None:
    error = RefResolutionError("cannot fetch it", "git+https://h/o/r", "network", hint="connect")

    assert isinstance(error, BundleNotFoundError)
    assert (error.ref, error.reason, str(error)) == ("git+https://h/o/r", "network", "cannot fetch it\n  fix: connect")


def test_the_reasons_are_a_closed_set() -> None:
    words = "syntax not-found network auth timeout offline subpath-missing too-large unsafe-path"
    assert set(REF_RESOLUTION_REASONS) == {*words.split(" "), "backend-missing", "integrity"}
