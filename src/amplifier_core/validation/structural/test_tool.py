"""Does a module have the shape of a tool?"""

from amplifier_core.validation.tool import ToolValidator

from .base import StructuralTests


class ToolStructuralTests(StructuralTests):
    """Inherit from it in the test suite of a tool."""

    validator = ToolValidator


class TestToolStructural(ToolStructuralTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.structural`."""
