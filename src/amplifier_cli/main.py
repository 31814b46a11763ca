"""The root of the command: its own options, and what happens to errors."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from amplifier_system.visible import open_screens, screens

from .command_group import RootGroup, context_settings, examples
from .exit_codes import ExitCode
from .options import Invocation

PROGRAM = "amplifier"
COMPLETE_VARIABLE = "_AMPLIFIER_COMPLETE"

_NEW_OBJECTS = 500_000
"""After so many, garbage is looked for, until a session is open: imports make fewer, and no garbage."""

app = typer.Typer(
    name=PROGRAM,
    cls=RootGroup,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=context_settings(),
)


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "amplifier",
        'amplifier run "What does this project do?"',
        'git diff | amplifier run "Write a commit message"',
        "amplifier COMMAND --help",
    ),
)
def root(
    ctx: typer.Context,
    home: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep everything here, not in AMPLIFIERD_HOME or ~/.amplifierd.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Agents that are assembled, not programmed.

    A profile or a bundle names the modules of an agent; this command runs it in the current directory. Without a key
    for a model it uses the profile foundation/offline, which follows plain requests by rules.
    """
    ctx.obj = Invocation(home=Path(home) if home else None, debug=debug)
    if version:
        from .version import version as current  # read when it is asked for

        typer.echo(f"{PROGRAM} {current()}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            typer.echo(ctx.get_help())
            raise typer.Exit
        from .chat.start import begin_chat  # needs a terminal's libraries

        raise typer.Exit(begin_chat(ctx, {}))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; without arguments it is the command of this process."""
    if argv is None:
        gc.set_threshold(_NEW_OBJECTS)
        atexit.register(gc.freeze)  # the collector need not look through everything again at the end
    _open_closed_streams()
    if argv is None:
        open_screens()
        return _run(sys.argv[1:])
    with screens():
        return _run(argv)


def _run(argv: Sequence[str]) -> int:
    arguments = list(argv)
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined] # only when a shell completes

        completion_init()
    try:
        app(args=arguments, prog_name=PROGRAM)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK if ended.code is None else ExitCode.FAILURE
    except Exception as error:
        from amplifier_core.exceptions import AmplifierError  # loaded when something went wrong
        from amplifierd.os_errors import explained

        from .failures import report

        known = explained(error) if isinstance(error, OSError) else error
        if isinstance(known, AmplifierError):
            return report(known, debug="--debug" in arguments)
        raise
    return ExitCode.OK


def _open_closed_streams() -> None:
    """Stand in for standard streams that the caller closed, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 # for the whole process
