"""Validates context managers."""

from .base import ModuleValidator


class ContextValidator(ModuleValidator):
    """Holds a module to the contract of a context manager."""

    module_type = "context"
