"""Does a module have the shape of a context manager?"""

from amplifier_core.validation.context import ContextValidator

from .base import StructuralTests


class ContextStructuralTests(StructuralTests):
    """Inherit from it in the test suite of a context manager."""

    validator = ContextValidator


class TestContextStructural(ContextStructuralTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.structural`."""
