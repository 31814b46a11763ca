"""Prepared bundles: every module activated, ready to create sessions and to spawn children."""

from .module_resolver import BundleModuleResolver, BundleModuleSource
from .preparation import prepare_bundle
from .prepared_bundle import PreparedBundle

__all__ = ["BundleModuleResolver", "BundleModuleSource", "PreparedBundle", "prepare_bundle"]
