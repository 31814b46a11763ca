"""Prepared bundles: every module activated, ready to create sessions and to spawn children."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .preparation import BundleModuleResolver, BundleModuleSource, prepare_bundle
    from .prepared_bundle import PreparedBundle

__all__ = ["BundleModuleResolver", "BundleModuleSource", "PreparedBundle", "prepare_bundle"]

__getattr__ = lazy_names(
    __name__,
    {
        ".preparation": ("BundleModuleResolver", "BundleModuleSource", "prepare_bundle"),
        ".prepared_bundle": ("PreparedBundle",),
    },
)
