"""What a fetched bundle may not refer to: paths of this machine outside of what was fetched with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.resolution import parse_uri

if TYPE_CHECKING:
    from amplifier_foundation.bundle.model import Bundle

LOCAL_PATH = "bad-ref: local path in a remote profile"


def check_remote_paths(bundle: Bundle, root: Path) -> None:
    """Look at what a bundle that was fetched includes, its sources and context files; `root` is the tree it came with.

    Raises:
        RefResolutionError: one is an absolute or home-relative path of this machine.
    """
    boundary = os.path.realpath(root)
    for where, text in _paths(bundle):
        if text.startswith("~") or not Path(os.path.realpath(text)).is_relative_to(boundary):
            hint = "keep what it names beside it, and write ./path"
            raise RefResolutionError(f"{LOCAL_PATH}: {where} is {text!r}", text, "unsafe-path", hint=hint)


def _paths(bundle: Bundle) -> Iterator[tuple[str, str]]:
    for name, path in bundle.context.items():
        base = bundle.base_path
        written = str(path.relative_to(base)) if base is not None and path.is_relative_to(base) else str(path)
        yield f"context {name}", written if written.startswith("~") else str(path)
    for item in bundle.includes:
        if (local := _local_path(item.get("bundle") if isinstance(item, Mapping) else item)) is not None:
            yield "an include", local
    yield from _sources(vars(bundle))
    yield from ((f"spawn: {where}", text) for where, text in _sources(bundle.spawn))
    for agent, definition in bundle.agents.items():
        yield from ((f"agent {agent}: {where}", text) for where, text in _sources(definition))


def _sources(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for slot in MountPlan(definition).slots():
        if (local := _local_path(slot.source)) is not None:
            yield f"the source of {slot.module_id or slot.place}", local


def _local_path(text: Any) -> str | None:
    """Return the path of this machine that a reference names, None for any other; `./x` is beside the file."""
    if not isinstance(text, str) or text.startswith(("./", "../")):
        return None
    parsed = parse_uri(text)
    if text.startswith("~"):
        return text
    return parsed.path if text.startswith("/") or parsed.scheme in ("file", "zip+file") else None
