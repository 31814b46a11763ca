"""Files and directories of the cache: written whole, removed whole, private to their owner."""

import contextlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from amplifier_system.files import write_atomically

logger = logging.getLogger(__name__)

PRIVATE_DIRECTORY = 0o700


def make_directory(path: Path) -> Path:
    """Create a directory, and those above it, for the owner alone."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    return path


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None when there is no such file or no object in it."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and counts as missing: %s", path, error)
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def now() -> str:
    """Return the time as it is stored: UTC, ISO 8601, with `Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def unique() -> str:
    return uuid.uuid4().hex


def remove(path: Path) -> None:
    """Remove a file or a directory with all that is in it; what is not there is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=partial(_unlock_and_retry, path))
    else:
        path.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Take a directory out of the cache in one step, then remove it: no one sees a half-removed tree."""
    trash = path.with_name(f".trash-{unique()}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(trash)
    remove(trash)


def tree_bytes(tree: Path) -> int:
    """Return the bytes of all files in a tree."""
    return sum(Path(directory, name).lstat().st_size for directory, _, names in os.walk(tree) for name in names)


def _unlock_and_retry(tree: Path, act: Callable[..., Any], path: str, error: tuple[Any, BaseException, Any]) -> None:
    """Archives and repositories may hold directories without write permission; nothing around the tree is changed."""
    if isinstance(error[1], FileNotFoundError):
        return
    for locked in (Path(path).parent, Path(path)):
        if locked.is_relative_to(tree) and locked.is_dir() and not locked.is_symlink():
            with contextlib.suppress(OSError):
                locked.chmod(PRIVATE_DIRECTORY)
    if Path(path).is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        act(path)
