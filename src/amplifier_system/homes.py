"""Where homes lie: named by the environment, or at the usual place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

PREFIX = "AMPLIFIERD_"
"""Begins the name of every environment variable that places or configures a home."""

HOME_VARIABLES = (
    "HOME",
    "AMPLIFIER_HOME",
    *(f"{PREFIX}{name}" for name in ("HOME", "CONFIG_DIR", "STATE_DIR", "LOG_DIR")),
)
"""The environment variables that say where homes and their closed places are."""

_DEFAULT = "~/.amplifierd"
_FILES = "files"
_STORE_VARIABLES = (f"{PREFIX}STORE", f"{PREFIX}DAEMON_STORE")
_STORE = re.compile(r"""^[^#\n]*\bstore["']?\s*:\s*["']?([^\s,}"']*)""", re.MULTILINE)


def daemon_home(home: Path | str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Return the home of the daemon and the command; `home` stands for `AMPLIFIERD_HOME`."""
    variables = os.environ if environ is None else environ
    return _normal(home or variables.get(f"{PREFIX}HOME") or _DEFAULT)


def daemon_directory(name: str, default: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return a part of a home that `AMPLIFIERD_<NAME>_DIR` may put elsewhere."""
    variables = os.environ if environ is None else environ
    return _normal(variables.get(f"{PREFIX}{name}_DIR") or default)


def daemon_state(home: Path | str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Return where a home keeps its sessions."""
    return daemon_directory("STATE", daemon_home(home, environ) / "state", environ)


def sessions_are_files(home: Path | str | None = None, environ: Mapping[str, str] | None = None) -> bool:
    """True if a home surely keeps its sessions in files; where it may not, its settings have to be read."""
    variables = os.environ if environ is None else environ
    named = next((text for name in _STORE_VARIABLES if (text := variables.get(name, "").strip())), None)
    if named is not None:
        return named == _FILES
    config = daemon_directory("CONFIG", daemon_home(home, environ) / "config", environ)
    try:
        text = (config / "daemon.yaml").read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False
    return all(value == _FILES for value in _STORE.findall(text))


def ecosystem_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the home of other applications of the ecosystem: `AMPLIFIER_HOME`, or `~/.amplifier`."""
    variables = os.environ if environ is None else environ
    return Path(variables.get("AMPLIFIER_HOME") or "~/.amplifier").expanduser().resolve()


def _normal(path: Path | str) -> Path:
    return Path(os.path.normpath(Path(path).expanduser().absolute()))
