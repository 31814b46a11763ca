"""Does a module have the shape of a hook?"""

from amplifier_core.validation.hook import HookValidator

from .base import StructuralTests


class HookStructuralTests(StructuralTests):
    """Inherit from it in the test suite of a hook."""

    validator = HookValidator


class TestHookStructural(HookStructuralTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.structural`."""
