"""Does a module have the shape of an orchestrator?"""

from amplifier_core.validation.orchestrator import OrchestratorValidator

from .base import StructuralTests


class OrchestratorStructuralTests(StructuralTests):
    """Inherit from it in the test suite of an orchestrator."""

    validator = OrchestratorValidator


class TestOrchestratorStructural(OrchestratorStructuralTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.structural`."""
