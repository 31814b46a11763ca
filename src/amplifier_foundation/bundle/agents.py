"""Agent files: what `agents/<name>.md` says about an agent."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.exceptions import BundleError, BundleLoadError
from amplifier_foundation.provenance import Layer

from .files import read_document, resolve_definition

if TYPE_CHECKING:
    from .model import Bundle

logger = logging.getLogger(__name__)

_TOP_LEVEL_KEYS = (
    *("tools", "providers", "hooks", "session", "provider_preferences", "model_role"),
    *("spawn", "budget", "return_contract"),
)


def read_agent_file(path: Path, fallback_name: str) -> dict[str, Any]:
    """Return an agent's definition: the keys of `meta`, the sections beside it, and the body as `instruction`.

    A file without `meta` that has `name` or `description` at the top is read as if all of it were `meta`. Relative
    module sources that exist beside the file are made absolute; others are left for activation.

    Raises:
        BundleLoadError: the file cannot be read or is not front matter with a mapping.
        ValueError: `agents` is neither `"all"`, `"none"` nor a list.
    """
    document = read_document(path)
    front = document.data
    meta = front.get("meta") or {}
    if not isinstance(meta, dict):
        raise BundleLoadError(f"agent {path}: meta must be a mapping, it is a {type(meta).__name__}")
    if not meta and ("name" in front or "description" in front):
        meta = {key: value for key, value in front.items() if key not in ("agents", "meta")}
    definition = {**meta, "name": meta.get("name") or fallback_name, "description": meta.get("description") or ""}
    definition |= {key: front[key] for key in _TOP_LEVEL_KEYS if key in front}
    if (access := _agent_access(front.get("agents"), path)) is not None:
        definition["agents"] = access
    if document.instruction:
        definition["instruction"] = document.instruction
    return resolve_definition(definition, path.parent, must_exist=True)


def fill_from_files(bundle: Bundle) -> None:
    """Add to each agent of a bundle what its file says and its definition leaves open."""
    for name, definition in list(bundle.agents.items()):
        path = bundle.resolve_agent_path(name)
        if path is None or not isinstance(definition, dict):
            continue
        try:
            found = read_agent_file(path, name)
        except (BundleError, OSError, ValueError) as error:
            logger.warning("agent %r: %s is skipped: %s", name, path, error)
            continue
        filled = {key: value for key, value in found.items() if not definition.get(key)}
        layer = Layer(bundle.name, path, {"agents": {name: filled}}, root=("agents", name))
        bundle._layers = (*bundle._get_layers(bundle.context), layer)
        bundle.agents[name] = {**definition, **filled}


def _agent_access(value: Any, path: Path) -> Any:
    """Return which agents the agent may use, or `None` when the file does not say; a roster does not."""
    if value is None or isinstance(value, dict):
        return None
    if isinstance(value, list) or value in ("all", "none"):
        return value
    raise ValueError(f"agent {path}: agents must be 'all', 'none' or a list of names, it is {value!r}")
