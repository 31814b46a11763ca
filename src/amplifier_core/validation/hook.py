"""Validates hooks."""

from .base import ModuleValidator


class HookValidator(ModuleValidator):
    """Holds a module to the contract of a hook."""

    module_type = "hook"
