"""The registry: bundles by name or source, loaded with everything they include."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .registry import BundleRegistry, load_bundle
    from .state import BundleState, UpdateInfo

__all__ = ["BundleRegistry", "BundleState", "UpdateInfo", "load_bundle"]

__getattr__ = lazy_names(
    __name__,
    {
        ".registry": ("BundleRegistry", "load_bundle"),
        ".state": ("BundleState", "UpdateInfo"),
    },
)
