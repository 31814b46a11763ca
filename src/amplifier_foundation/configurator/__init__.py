"""Looking into a running session, and switching parts of it off and on; nothing in loading or running depends on it."""

from .configurator import SessionConfigurator
from .overlay import (
    RUNTIME_CONTEXT_OVERLAY_CAPABILITY,
    RUNTIME_SKILL_OVERLAY_CAPABILITY,
    RuntimeOverlay,
    TransitionResult,
)
from .records import IncludeStep, ItemRecord, walk_include_chain, walk_include_chains

__all__ = [
    "RUNTIME_CONTEXT_OVERLAY_CAPABILITY",
    "RUNTIME_SKILL_OVERLAY_CAPABILITY",
    "IncludeStep",
    "ItemRecord",
    "RuntimeOverlay",
    "SessionConfigurator",
    "TransitionResult",
    "walk_include_chain",
    "walk_include_chains",
]
