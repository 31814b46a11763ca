"""The former home of the functions in `amplifier_foundation.session.messages`."""

import warnings

from .messages import (
    add_synthetic_tool_results,
    count_turns,
    find_orphaned_tool_calls,
    get_turn_boundaries,
    get_turn_summary,
    is_real_user_message,
    slice_to_turn,
)

warnings.warn(
    "amplifier_foundation.session.slice is deprecated: import from amplifier_foundation.session",
    DeprecationWarning,
    stacklevel=2,
)

__all__ = [
    "add_synthetic_tool_results",
    "count_turns",
    "find_orphaned_tool_calls",
    "get_turn_boundaries",
    "get_turn_summary",
    "is_real_user_message",
    "slice_to_turn",
]
