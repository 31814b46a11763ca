"""Mentions: `@path` and `@namespace:path` in a text, and the context files they bring in."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .deduplicator import ContentDeduplicator
    from .loader import (
        expand_mentions_in_instruction,
        format_context_block,
        load_mentions,
    )
    from .models import ContextFile, MentionResult
    from .parser import parse_mentions
    from .protocol import MentionResolverProtocol
    from .resolver import BaseMentionResolver
    from .utils import format_directory_listing

__all__ = [
    "BaseMentionResolver",
    "ContentDeduplicator",
    "ContextFile",
    "MentionResolverProtocol",
    "MentionResult",
    "expand_mentions_in_instruction",
    "format_context_block",
    "format_directory_listing",
    "load_mentions",
    "parse_mentions",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".deduplicator": ("ContentDeduplicator",),
        ".loader": ("expand_mentions_in_instruction", "format_context_block", "load_mentions"),
        ".models": ("ContextFile", "MentionResult"),
        ".parser": ("parse_mentions",),
        ".protocol": ("MentionResolverProtocol",),
        ".resolver": ("BaseMentionResolver",),
        ".utils": ("format_directory_listing",),
    },
)
