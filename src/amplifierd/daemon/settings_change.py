"""Settings that are changed while the daemon runs: written into the file, and applied where that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifierd.exceptions import InvalidSettingError
from amplifierd.paths import Paths
from amplifierd.settings import Settings, load_settings
from amplifierd.settings_file import edit_settings

_AT_START = frozenset(
    {"host", "port", "uds", "auth", "trusted_proxies", "tls", "metrics", "store", "cluster", "workers"}
)
"""Settings, and sections of them, that count from the next start on; a running daemon takes over the others."""

_FILES = ("tls.certfile", "tls.keyfile", "cluster.ca_file")
"""Files that the next start needs."""


def change_settings(paths: Paths, settings: Settings, changes: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """Write settings into a home's file, and return those that hold then, and the keys that wait for a restart.

    Variables of the environment outrank the file, here as at a start; blocks.

    Raises:
        InvalidSettingError: a key is unknown or a value invalid; the file is as it was.
    """
    for key in _FILES:
        if (file := changes.get(key)) and not _is_file(file):
            raise InvalidSettingError(f"{key}: {file} is not a file", hint="put it there first")
    edit_settings(paths.settings_file, changes, locks_dir=paths.locks)
    stored, applied = load_settings(paths.settings_file), settings
    waiting = []
    for key in sorted(changes):
        section, _, name = key.partition(".")
        if section in _AT_START:
            waiting.append(key)
            continue
        value = getattr(stored, section)
        if name:
            value = getattr(applied, section).model_copy(update={name: getattr(value, name)})
        applied = applied.model_copy(update={section: value})
    return applied, waiting


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
