"""What a bundle names and cannot be found: sections that mean nothing, agents, context files and mentioned files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.mentions.parser import parse_mentions

if TYPE_CHECKING:
    from .model import Bundle

SECTIONS = frozenset(
    {"bundle", "meta", "includes", "session", "providers", "tools", "hooks", "agents", "context", "spawn"}
)
_SHORTCUTS = frozenset({"user", "project"})  # namespaces that applications give a meaning


def find_misspelled(data: Mapping[str, Any], known: Collection[str] = SECTIONS) -> Iterator[str]:
    """Yield a sentence for every key that looks like a section's; other keys may belong to others."""
    unknown = [key for key in data if isinstance(key, str) and key not in known]
    if not unknown:
        return
    from difflib import get_close_matches  # most files have no unknown key

    for key in unknown:
        if close := get_close_matches(key.lower(), known, n=1, cutoff=0.8):
            yield f"section {key!r} has no effect; did you mean {close[0]!r}?"


def find_gaps(bundle: Bundle, *, is_complete: bool) -> list[str]:
    """Return a sentence for every agent, context file and mentioned file of a bundle that is not there. Reads disks.

    Until a bundle is complete, another one may bring the namespaces that it refers to: then only those are looked at
    that it knows. Mentions without a namespace belong to the session's working directory and are never looked at.
    """
    return [*_agents(bundle, is_complete), *_context(bundle, is_complete), *_mentions(bundle, is_complete)]


def _agents(bundle: Bundle, is_complete: bool) -> Iterator[str]:
    for name, definition in bundle.agents.items():
        if not isinstance(definition, dict) or definition.keys() - {"name"}:
            continue
        namespace, colon, _ = name.partition(":")
        if colon and not is_complete and bundle.find_namespace(namespace) is None:
            continue
        if bundle.resolve_agent_path(name) is None:
            yield f"agent {name!r} has no file agents/{name.rpartition(':')[2]}.md"


def _context(bundle: Bundle, is_complete: bool) -> Iterator[str]:
    for name, path in bundle.context.items():
        if not _exists(path):
            yield f"context file {name!r} does not exist"
    for reference in bundle._pending_context:
        meant = bundle.find_pending(reference)
        if meant is None and is_complete:
            yield f"context file {reference!r} belongs to a namespace that is not known"
        elif meant is not None and not _exists(meant):
            yield f"context file {reference!r} does not exist"


def _mentions(bundle: Bundle, is_complete: bool) -> Iterator[str]:
    for mention in parse_mentions(bundle.instruction or ""):
        namespace, colon, rest = mention.removeprefix("@").partition(":")
        if not colon or namespace in _SHORTCUTS:
            continue
        base = bundle.find_namespace(namespace)
        if base is None:
            if is_complete:
                yield f"mention {mention!r} belongs to a namespace that is not known"
        elif not any(name in bundle.context or _exists(base / name.lstrip("/")) for name in (rest, rest.rstrip(".:"))):
            yield f"mention {mention!r} leads to nothing in bundle {namespace!r}"


def _exists(path: Path) -> bool:
    try:
        return os.path.exists(path)  # noqa: PTH110 - every bundle names dozens of files
    except ValueError:  # a name that no file can have
        return False
