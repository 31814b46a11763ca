"""Modules made importable: resolved, their dependencies in environments of their own, their folders on `sys.path`."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .activator import ModuleActivationError, ModuleActivator

__all__ = ["ModuleActivationError", "ModuleActivator"]

__getattr__ = lazy_names(
    __name__,
    {
        ".activator": ("ModuleActivationError", "ModuleActivator"),
    },
)
