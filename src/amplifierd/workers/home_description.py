"""What a worker is told of the home that it opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amplifierd.sessions.runtime import Runtime

DescribeHome = Callable[[], Awaitable[dict[str, Any]]]
"""Returns the parameters with which a worker opens its home."""

_SETTINGS = frozenset(
    {
        *("log_level", "working_dir", "default_profile", "offline"),
        *("startup", "compile", "builds", "cache", "cluster", "checkpoints", "sessions", "mentions", "security"),
    }
)
"""What a worker is told of the settings; how the daemon is reached is none of its business."""


async def describe_home(runtime: Runtime, shipped_collection: Path | None) -> dict[str, Any]:
    """Return the parameters of `open` for a worker whose sessions run on the same store, paths and settings as ours."""
    return {
        "paths": {name: str(path) for name, path in asdict(runtime.paths).items()},
        "settings": {
            **runtime.settings.model_dump(mode="json", include=set(_SETTINGS)),
            "store": runtime.store.address.secret_text,  # over a pipe that only the two of us have
        },
        "shipped_collection": str(shipped_collection) if shipped_collection else None,
        "member_id": await runtime.store.join(),
    }
