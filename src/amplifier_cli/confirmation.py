"""Questions that a command puts to the person at the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from .exit_codes import ExitCode
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
        raise UsageError(f"{question} There is no terminal to ask on", hint="add --force to skip the question")
    with interruptible():
        typer.confirm(question, abort=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a question: an event loop that waits for the answer would not hear of it.

    Raises:
        typer.Exit: Ctrl-C was pressed.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (KeyboardInterrupt, typer.Abort) as stopped:
        if isinstance(stopped, typer.Abort) and not isinstance(stopped.__context__, KeyboardInterrupt):
            raise  # the answer was no
        sys.stderr.write("\n")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
