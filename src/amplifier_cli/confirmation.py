"""The question before something is gone for good."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .failures import UsageError

Force = Annotated[bool, typer.Option("--force", help="Do not ask.")]


def confirm(question: str, *, force: bool) -> None:
    """Ask at the terminal, unless `force` is set; a no ends the command.

    Raises:
        UsageError: there is no terminal.
    """
    if force:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask at", hint="say --force")
    typer.confirm(question, abort=True)
