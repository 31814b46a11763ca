"""Prepared bundles: every module activated, ready to create sessions and to spawn children."""

from .bundle import PreparedBundle
from .preparing import prepare_bundle
from .resolver import BundleModuleResolver, BundleModuleSource

__all__ = ["BundleModuleResolver", "BundleModuleSource", "PreparedBundle", "prepare_bundle"]
