"""What context-persistent reads beyond the settings of every compacting context."""

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

from amplifier_kit.config import ModuleConfig
from amplifier_kit.mounting import project_slug

logger = logging.getLogger(__name__)


class PersistenceSettings:
    """Where the conversation is kept and what a fresh one starts with, as attributes."""

    def __init__(self, config: ModuleConfig) -> None:
        self.transcript_path = _path(config)
        self.memory_files = _paths(config)
        self.fsync = config.boolean("fsync", False)
        if config.number("truncate_boundary", None) is not None:
            logger.info("%s: config key 'truncate_boundary' has no effect any more", config.module_id)


def _path(config: ModuleConfig) -> Path | None:
    value = config.raw("transcript_path")
    if value is None:
        return None
    return Path(value) if _is_path(value) else config.refuse("transcript_path", value, "a path", None)


def _paths(config: ModuleConfig) -> list[Path]:
    values = config.items("memory_files", [])
    if not all(map(_is_path, values)):
        return config.refuse("memory_files", values, "a list of paths", [])
    return [Path(value) for value in values]


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and str(value) != ""


_FILE = "context-messages.jsonl"


def derive_transcript_path(working_dir: Path, session_id: str) -> Path:
    """Return the file of a session; one that was begun under the older name of its project is found there."""
    directory = working_dir.absolute()
    derived = _session_file(project_slug(directory), session_id)
    if derived.exists():
        return derived
    older = _session_file(f"{directory.name}-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}", session_id)
    return older if older.exists() else derived


def _session_file(slug: str, session_id: str) -> Path:
    return Path.home() / ".amplifier" / "projects" / slug / "sessions" / session_id / _FILE
