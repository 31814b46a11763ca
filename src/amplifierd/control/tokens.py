"""`amplifierd token`: who may use the daemon, besides users who can read `config/token`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from amplifier_system.visible import say
from amplifierd.exceptions import SettingsError
from amplifierd.home import open_home
from amplifierd.limits import Limits
from amplifierd.server.auth.callers import SCOPES
from amplifierd.server.auth.credentials import Credentials
from amplifierd.server.auth.tokens import Tokens

app = typer.Typer(help="Named tokens, each with a scope.", no_args_is_help=True, rich_markup_mode=None)

T = TypeVar("T")
Name = Annotated[str, typer.Argument(help="The name of the token.")]


def _with_credentials(ctx: typer.Context, work: Callable[[Credentials], Awaitable[T]]) -> T:
    """Do something with the tokens of the home, or of the cluster that it belongs to."""
    home = open_home(ctx.obj.home, config_file=ctx.obj.config)
    credentials = Credentials(home.paths, Tokens(home.paths, home.settings.auth.tokens))

    async def run() -> T:
        if home.settings.store.is_files:
            return await work(credentials)
        try:
            await credentials.share(home.sessions.runtime.store)  # type: ignore[arg-type] # the settings say which
            return await work(credentials)
        finally:
            await credentials.close()
            await home.sessions.close()

    return asyncio.run(run())


@app.command("create")
def create(
    ctx: typer.Context,
    name: Name,
    scope: Annotated[str, typer.Option(help=f"One of {', '.join(SCOPES)}.")] = "run",
    owner: Annotated[str | None, typer.Option(help="Whose sessions it sees; by default its name.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="What each of its sessions may cost, in USD.")] = None,
    root: Annotated[
        list[str] | None, typer.Option(help="A directory that its sessions work in or below; may be repeated.")
    ] = None,
) -> None:
    """Make a token and print it once: only its hash is kept."""
    chosen = next((known for known in SCOPES if known == scope), None)
    if chosen is None:
        raise SettingsError(f"{scope!r} is not a scope", hint=f"use one of {', '.join(SCOPES)}")
    limits = Limits.read({"cost_usd": max_cost}) if max_cost is not None else None
    roots = [os.path.normpath(Path(each).expanduser().absolute()) for each in root or ()]
    _, secret = _with_credentials(
        ctx, lambda credentials: credentials.create_token(name, chosen, owner=owner, limits=limits, roots=roots)
    )
    say(secret)


@app.command("list")
def list_tokens(
    ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show the tokens, without their secrets."""

    async def look(credentials: Credentials) -> list[dict[str, Any]]:
        return [token.to_json() for token in credentials.tokens.list()]

    shown = _with_credentials(ctx, look)
    if as_json:
        say(json.dumps(shown, indent=2))
        return
    for token in shown:
        facts = [token["name"], token["scope"], f"owner {token['owner']}", token["created_at"] or ""]
        say("  ".join([*filter(None, facts), *(f"root {root}" for root in token["roots"])]))


@app.command("revoke")
def revoke(ctx: typer.Context, name: Name) -> None:
    """Make a token worthless at once."""
    _with_credentials(ctx, lambda credentials: credentials.revoke_token(name))
    say(f"revoked {name}")
