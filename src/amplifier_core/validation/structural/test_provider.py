"""Does a module have the shape of a provider?"""

from amplifier_core.validation.provider import ProviderValidator

from .base import StructuralTests


class ProviderStructuralTests(StructuralTests):
    """Inherit from it in the test suite of a provider."""

    validator = ProviderValidator


class TestProviderStructural(ProviderStructuralTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.structural`."""
