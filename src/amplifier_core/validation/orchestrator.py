"""Validates orchestrators."""

from .base import ModuleValidator


class OrchestratorValidator(ModuleValidator):
    """Holds a module to the contract of an orchestrator."""

    module_type = "orchestrator"
