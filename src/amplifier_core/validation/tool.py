"""Validates tools."""

from .base import ModuleValidator


class ToolValidator(ModuleValidator):
    """Holds a module to the contract of a tool."""

    module_type = "tool"
