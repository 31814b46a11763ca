"""Whether the settings of a project count: a user at a terminal is asked once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from amplifier_system.visible import visible_exactly
from amplifierd.paths import Paths
from amplifierd.trust import Trust

from .config import ResolvedConfig, resolve_app_config
from .failures import interruptible, say


def trusted_config(flags: Mapping[str, Any], *, home: Path | None) -> ResolvedConfig:
    """Return the settings that hold, after the question whether a project with settings of its own is to be trusted.

    It is asked once for a directory, at a terminal, and again with the difference when what sessions load from it has
    changed. Where it is not trusted, its settings have no effect, and that is said: they choose the agent, and with it
    which modules and hooks run.
    """
    config = resolve_app_config(flags, home=home)
    if config.ignored and _is_trusted_now(config, _trust(home)):
        config = resolve_app_config(flags, home=home)
    for warning in config.warnings:
        say(f"warning: {warning}")
    if config.ignored:
        place = config.files.project_dir
        why = "has changed since you trusted it" if _trust(home).contains(place) else "is not trusted"
        say(f"note: {place} {why}, so its settings have no effect: amplifier config trust")
    return config


def _trust(home: Path | None) -> Trust:
    return Trust(Paths.from_environment(home))


def _is_trusted_now(config: ResolvedConfig, trust: Trust) -> bool:
    place = config.files.project_dir
    was_trusted = trust.contains(place)
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or (trust.has_declined(place) and not was_trusted):
        return False
    if was_trusted:
        say(f"{place} has changed since you trusted it. What sessions load from it can choose which code runs here:")
        for difference in trust.differences(place):
            say(visible_exactly(difference))
    else:
        names = ", ".join(str(file.relative_to(config.files.folder)) for file in config.ignored)
        say(visible_exactly(f"{place} has settings of its own: {names}. They can choose which code runs here."))
    with interruptible():
        is_yes = typer.confirm("Trust this folder?", err=True)
    if is_yes:
        trust.add(place)
    elif not was_trusted:
        trust.decline(place)
    return is_yes
