"""Unreadable code in a folder that is used in place: bytecode that Python would run instead of a source."""

import os
from pathlib import Path

from amplifier_foundation.exceptions import BundleLoadError
from amplifier_foundation.sources.hashing import IGNORED_NAMES

_CACHE = "__pycache__"
_HEADER = 8
_UNCHECKED = 0b01  # of two flags: the file is run whatever its source says


def check_bytecode(directory: Path, owner: str) -> None:
    """Look through a module's folder; what Python itself keeps there is fine, since it is compared with its source.

    Raises:
        BundleLoadError: there is bytecode without a source, or bytecode that is not compared with it.
    """
    for place, subdirectories, files in os.walk(directory):
        subdirectories[:] = [name for name in subdirectories if name == _CACHE or name not in IGNORED_NAMES]
        is_cache = os.path.basename(place) == _CACHE  # noqa: PTH119 - asked for every folder
        for name in files:
            if not name.endswith(".pyc"):
                continue
            path = Path(place, name)
            hidden = _is_unchecked(path) if is_cache else f"{name[:-1]}" not in files
            if hidden:
                raise BundleLoadError(
                    f"module {owner} has bytecode that would run in place of its source: {path}",
                    hint="delete it; Python makes its own",
                )


def _is_unchecked(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.read(_HEADER)
    return len(header) == _HEADER and int.from_bytes(header[4:], "little") & 0b11 == _UNCHECKED
