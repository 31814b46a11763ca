"""Whether the settings of a project count: a user at a terminal is asked once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from amplifierd.paths import Paths
from amplifierd.trust import Trust

from .config import ResolvedConfig, resolve_app_config
from .confirmation import interruptible
from .failures import say


def trusted_config(flags: Mapping[str, Any], *, home: Path | None) -> ResolvedConfig:
    """Return the settings that hold, after the question whether a project with settings of its own is to be trusted.

    It is asked once for a directory, at a terminal. Where it is not trusted, its settings have no effect, and that is
    said: they choose the agent, and with it which modules and hooks run.
    """
    config = resolve_app_config(flags, home=home)
    if config.ignored and _is_trusted_now(config, Trust(Paths.from_environment(home))):
        config = resolve_app_config(flags, home=home)
    for warning in config.warnings:
        say(f"warning: {warning}")
    if config.ignored:
        say(f"note: {config.files.project_dir} is not trusted, so its settings have no effect: amplifier config trust")
    return config


def _is_trusted_now(config: ResolvedConfig, trust: Trust) -> bool:
    place = config.files.project_dir
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or trust.has_declined(place):
        return False
    names = ", ".join(str(file.relative_to(config.files.folder)) for file in config.ignored)
    say(f"{place} has settings of its own: {names}. They can choose which code runs here.")
    with interruptible():
        is_yes = typer.confirm("Trust this folder?", err=True)
    if not is_yes:
        trust.decline(place)
        return False
    trust.add(place)
    return True
