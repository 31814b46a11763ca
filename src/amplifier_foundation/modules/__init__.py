"""Modules made importable: resolved, their dependencies in environments of their own, their folders on `sys.path`."""

from .activator import ModuleActivationError, ModuleActivator

__all__ = ["ModuleActivationError", "ModuleActivator"]
