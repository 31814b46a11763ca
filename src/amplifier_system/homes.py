"""Where homes lie: named by the environment, or at the usual place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PREFIX = "AMPLIFIERD_"
"""Every variable of the environment that the daemon and the command read begins with it."""

_DEFAULT = "~/.amplifierd"


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


def ecosystem_home() -> Path:
    """Return the home of other applications of the ecosystem: `AMPLIFIER_HOME`, or `~/.amplifier`."""
    return Path(os.environ.get("AMPLIFIER_HOME") or "~/.amplifier").expanduser().resolve()


def _normal(path: Path | str) -> Path:
    return Path(os.path.normpath(Path(path).expanduser().absolute()))
