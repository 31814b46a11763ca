"""What context-persistent reads beyond the settings of every compacting context."""

import logging
import os
from pathlib import Path
from typing import Any

from amplifier_kit.config import ModuleConfig

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
