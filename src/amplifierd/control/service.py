"""The daemon as a service of the user: a systemd unit, so that it starts with the machine and is kept running."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from amplifierd.exceptions import SettingsError
from amplifierd.paths import Paths

UNIT = "amplifierd.service"

_TEXT = """\
[Unit]
Description=Amplifier daemon ({home})
After=network.target

[Service]
Type=exec
Environment="AMPLIFIERD_HOME={home}"
ExecStart="{python}" -m amplifierd{config} serve
Restart=on-failure
RestartPreventExitStatus=2 3 4 98
TimeoutStopSec=90
KillMode=mixed
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit_file() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root) / "systemd" / "user" / UNIT


def install(paths: Paths, config: Path | None = None) -> Path:
    """Write the unit of a home, with the settings file to use if it is not its own, and start it where systemd runs.

    Raises:
        SettingsError: systemd refuses it.
    """
    file = unit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    home, python = (_escaped(str(part)) for part in (paths.home, sys.executable))
    settings = f' --config "{_escaped(str(config.absolute()))}"' if config else ""
    file.write_text(_TEXT.format(home=home, python=python, config=settings), encoding="utf-8")
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", UNIT)
    return file


def uninstall() -> Path | None:
    """Stop the service and remove its unit; returns the file, None when there was none."""
    file = unit_file()
    if not file.exists():
        return None
    _systemctl("disable", "--now", UNIT)
    file.unlink()
    _systemctl("daemon-reload")
    return file


def is_running_systemd() -> bool:
    """Say whether this user's services are kept by systemd."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return shutil.which("systemctl") is not None and runtime is not None and Path(runtime, "systemd").exists()


def _systemctl(*arguments: str) -> None:
    if not is_running_systemd():
        return
    done = subprocess.run(["systemctl", "--user", *arguments], capture_output=True, text=True, check=False, timeout=90)
    if done.returncode:
        raise SettingsError(f"systemctl --user {' '.join(arguments)} failed: {done.stderr.strip()}")


def _escaped(text: str) -> str:
    """Return a text as it stands between quotes in a unit."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
