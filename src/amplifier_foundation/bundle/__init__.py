"""Bundles: configuration that composes to a mount plan, with an instruction and context files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .model import Bundle
from .origins import Origin

if TYPE_CHECKING:
    from amplifier_foundation.observability import FOUNDATION_OBSERVABILITY_EVENTS
    from amplifier_foundation.prepared import BundleModuleResolver, BundleModuleSource, PreparedBundle

__all__ = [
    "FOUNDATION_OBSERVABILITY_EVENTS",
    "Bundle",
    "BundleModuleResolver",
    "BundleModuleSource",
    "Origin",
    "PreparedBundle",
]


_ELSEWHERE = {
    "FOUNDATION_OBSERVABILITY_EVENTS": "amplifier_foundation.observability",
    "BundleModuleResolver": "amplifier_foundation.prepared",
    "BundleModuleSource": "amplifier_foundation.prepared",
    "PreparedBundle": "amplifier_foundation.prepared",
}
"""Names that live in packages which themselves need bundles: they are imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE[name]), name)
