"""The entry points of installed modules, read again only when the environment changed."""

import importlib.metadata
import os
import sys
from importlib.metadata import EntryPoint
from typing import Any

from .packages import ENTRY_POINT_GROUP
from .sys_path import held_entries

_read = importlib.metadata.entry_points
_cache: tuple[Any, list[EntryPoint]] = (None, [])


def entry_points() -> list[EntryPoint]:
    """Return the installed modules' entry points, the first of `sys.path` first.

    What sessions put on `sys.path`, folders of modules and their dependencies, is not installed: an entry point there
    could take the place of an installed module. Reading them all takes milliseconds, so the answer is kept for as long
    as the other directories and their modification times stay the same. A function that a test puts in the place of
    `importlib.metadata.entry_points` is asked every time.
    """
    global _cache
    if importlib.metadata.entry_points is not _read:
        return list(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))
    ours = held_entries()
    directories = [(entry, _modified(entry)) for entry in sys.path if entry not in ours]
    if _cache[0] != directories:
        _cache = (directories, _read_from([entry for entry, _ in directories]))
    return _cache[1]


def _read_from(directories: list[str]) -> list[EntryPoint]:
    found = (
        point
        for distribution in importlib.metadata.distributions(path=directories)
        for point in distribution.entry_points
        if point.group == ENTRY_POINT_GROUP
    )
    return list({(point.name, point.value): point for point in found}.values())


def _modified(entry: str) -> int:
    try:
        return os.stat(entry or ".").st_mtime_ns  # noqa: PTH116 - asked of every directory for every module
    except (OSError, ValueError):
        return 0
