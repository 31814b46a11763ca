"""Validates providers."""

from .base import ModuleValidator


class ProviderValidator(ModuleValidator):
    """Holds a module to the contract of a provider."""

    module_type = "provider"
