"""The working directory of a session, as its modules see it."""

from pathlib import Path
from typing import Any

WORKING_DIR_CAPABILITY = "session.working_dir"


def get_working_dir(coordinator: Any, fallback: Path | str | None = None) -> Path:
    """Return the session's working directory, else `fallback`, else the process's current directory."""
    value = coordinator.get_capability(WORKING_DIR_CAPABILITY)
    if value is None:
        value = fallback
    return Path.cwd() if value is None else Path(value)


def set_working_dir(coordinator: Any, path: Path | str) -> None:
    """Make `path`, resolved, the session's working directory."""
    coordinator.register_capability(WORKING_DIR_CAPABILITY, str(Path(path).resolve()))
