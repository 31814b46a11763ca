"""Prepared bundles: every module activated, ready to create sessions and to spawn children."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .module_resolver import BundleModuleResolver, BundleModuleSource
    from .preparation import prepare_bundle
    from .prepared_bundle import PreparedBundle

__all__ = ["BundleModuleResolver", "BundleModuleSource", "PreparedBundle", "prepare_bundle"]

__getattr__ = lazy_names(
    __name__,
    {
        ".module_resolver": ("BundleModuleResolver", "BundleModuleSource"),
        ".preparation": ("prepare_bundle",),
        ".prepared_bundle": ("PreparedBundle",),
    },
)
