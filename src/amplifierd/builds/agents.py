"""An agent as it stands in a mount plan: its text, and what delegation tools read of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from amplifier_foundation.io import parse_frontmatter
from amplifierd.documents.document import as_json

_OVERLAYS = ("session", "providers", "tools", "hooks")


def agent_from_text(name: str, text: str, source: str) -> dict[str, Any]:
    """Return the plan's entry for an agent file; front matter adds its description, overlays and instruction.

    Raises:
        ValueError: the front matter is not YAML.
    """
    entry: dict[str, Any] = {"content": text, "metadata": {"source": source}}
    try:
        front, body = parse_frontmatter(text)
    except yaml.YAMLError as error:
        raise ValueError(f"Agent '{name}' has front matter that is not YAML: {error}") from error
    if not isinstance(front, Mapping) or not front:
        return entry
    return {**entry, **_derived(name, as_json(front), body.strip())}


def agent_from_mapping(name: str, definition: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the plan's entry for an agent that a profile defines in place."""
    system = definition.get("system")
    inner = system.get("instruction") if isinstance(system, Mapping) else None
    text = str(definition.get("instruction") or inner or definition.get("content") or "")
    return {"content": text, "metadata": {"source": source}, **_derived(name, definition, text)}


def _derived(name: str, front: Mapping[str, Any], body: str) -> dict[str, Any]:
    meta = front.get("meta")
    described = meta.get("description") if isinstance(meta, Mapping) else None
    return {
        "description": described or front.get("description") or f"Agent: {name}",
        **{key: front[key] for key in _OVERLAYS if front.get(key) is not None},
        "system": {"instruction": body},
    }
