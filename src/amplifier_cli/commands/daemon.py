"""`amplifier daemon`: what `amplifierd` does to the daemon of this home, where one looks for it first."""

from __future__ import annotations

from typing import Annotated

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.options import Json, invocation_of
from amplifierd.control.main import main
from amplifierd.paths import Paths

app = new_group(
    "Start, inspect and stop the daemon of this home.\n\n"
    "While it runs, amplifier run uses it, and a turn continues even if you close the terminal.",
    "amplifier daemon start",
    "amplifier daemon open",
    "amplifier daemon stop",
)


def _amplifierd(ctx: typer.Context, *arguments: str) -> typer.Exit:
    home = Paths.from_environment(invocation_of(ctx).home).home
    return typer.Exit(main(["--home", str(home), *arguments]))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog=examples("amplifier daemon start", "amplifier daemon start --port 9000"),
)
def start(ctx: typer.Context) -> None:
    """Start the daemon in the background; takes the options of amplifierd serve."""
    raise _amplifierd(ctx, "start", *ctx.args)


@app.command(epilog=examples("amplifier daemon stop"))
def stop(ctx: typer.Context) -> None:
    """Stop the daemon of this home; running turns are ended and stored first."""
    raise _amplifierd(ctx, "stop")


@app.command(epilog=examples("amplifier daemon status", "amplifier daemon status --json"))
def status(ctx: typer.Context, as_json: Json = False) -> None:
    """Say whether a daemon is serving this home; exits with 1 if not."""
    raise _amplifierd(ctx, "status", *(["--json"] if as_json else []))


@app.command("open", epilog=examples("amplifier daemon open", "amplifier daemon open --no-browser"))
def open_page(
    ctx: typer.Context,
    no_browser: Annotated[bool, typer.Option("--no-browser", "--print", help="Only print the link.")] = False,
) -> None:
    """Open the page in a browser, logged in; the link works once and expires after a minute."""
    raise _amplifierd(ctx, "open", *(["--no-browser"] if no_browser else []))


@app.command(epilog=examples("amplifier daemon logs", "amplifier daemon logs -f"))
def logs(
    ctx: typer.Context,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many lines.")] = 50,
) -> None:
    """Show the daemon's log."""
    raise _amplifierd(ctx, "logs", "-n", str(count), *(["-f"] if follow else []))
