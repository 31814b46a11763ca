"""The registry: bundles by name or source, loaded with everything they include."""

from .registry import BundleRegistry, load_bundle
from .state import BundleState, UpdateInfo

__all__ = ["BundleRegistry", "BundleState", "UpdateInfo", "load_bundle"]
