"""Documentation of a repository of bundles, made from its files alone: a graph with what each file costs in tokens."""

from .graph import bundle_repo_dot
from .texts import (
    color_tier,
    estimate_tokens,
    extract_delegation_targets,
    extract_mentions,
    parse_frontmatter,
    resolve_local_mention,
)
from .tool_schema import estimate_module_tool_tokens

__all__ = [
    "bundle_repo_dot",
    "color_tier",
    "estimate_module_tool_tokens",
    "estimate_tokens",
    "extract_delegation_targets",
    "extract_mentions",
    "parse_frontmatter",
    "resolve_local_mention",
]
