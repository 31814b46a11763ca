"""Changing the files of the command's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifierd.yaml_edits import edited, replace_text

from .config import Layer
from .failures import UsageError

Project = Annotated[bool, typer.Option("--project", help="Use the project's shared settings file.")]
Local = Annotated[bool, typer.Option("--local", help="Use the project's settings.local.yaml, for you alone.")]


def chosen_layer(*, project: bool, local: bool) -> Layer:
    """Return the file that two flags choose: the user's without either.

    Raises:
        UsageError: both are set.
    """
    if project and local:
        raise UsageError("--project and --local name different files", hint="use one of them")
    return "project" if project else "local" if local else "user"


def store_settings(file: Path, changes: Mapping[str, Any]) -> None:
    """Set values in a file, and take out those that are None; comments and order stay."""

    def change(document: Any) -> None:
        for key, value in changes.items():
            if value is None:
                document.pop(key, None)
            else:
                document[key] = value

    before = file.read_text(encoding="utf-8-sig") if file.exists() else ""
    replace_text(file, edited(before, change))
