"""`amplifierd cluster`: the daemons that share a store, and a few of them to try."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_system.visible import say
from amplifierd.cluster.cluster_token import HOW_TO_JOIN, STANDS_ALONE
from amplifierd.exceptions import MemberError, NotReadyError
from amplifierd.paths import Paths
from amplifierd.server.run_file import find_running

app = typer.Typer(help="Daemons that share one store.", no_args_is_help=True, rich_markup_mode=None)

_LOOK_S = 0.5


@app.command("status")
def status(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show who takes part, as the daemon of this home sees it."""
    found = _ask(ctx.obj.paths, "/cluster")
    if as_json:
        say(json.dumps(found, indent=2))
        return
    if not found["enabled"]:
        say(f"{STANDS_ALONE}\n  fix: {HOW_TO_JOIN}")
    for member in found["members"]:
        say(_line(member))


@app.command("drain")
def drain(
    ctx: typer.Context,
    member: Annotated[str | None, typer.Argument(help="Its id; by default the daemon of this home.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once it has no sessions left; fails if it is shut out before.")
    ] = False,
) -> None:
    """Take a daemon out of service: it ends its turns, then the others take over its sessions."""
    paths: Paths = ctx.obj.paths
    chosen = member or _ask(paths, "/cluster")["member_id"]
    _ask(paths, f"/cluster/members/{chosen}/drain", post=True)
    say(f"{chosen} starts nothing new")
    if wait:
        while not _has_left(paths, chosen):
            time.sleep(_LOOK_S)
        say(f"{chosen} has no sessions left, and can be stopped")


@app.command("try")
def try_out(
    directory: Annotated[
        Path | None, typer.Option(help="Keep everything there, and continue with it next time.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="A PostgreSQL to use, not one of its own.")] = None,
    members: Annotated[int, typer.Option(min=1, max=9, help="How many daemons.")] = 3,
) -> None:
    """Start PostgreSQL and three daemons on loopback, to see what happens when one is killed; Ctrl-C ends all."""
    from .trial import trial  # what starts servers, for this command alone

    with suppress(KeyboardInterrupt), trial(directory, store, members) as cluster:
        for number, (home, daemon) in enumerate(zip(cluster.homes, cluster.daemons, strict=True), start=1):
            say(f"member {number}: {daemon.url}  pid {daemon.process.pid}  home {home.home}")
        say(f"token, for all of them: {cluster.token}")
        say(f"who is there: amplifierd --home {cluster.homes[0].home} cluster status")
        say("Ctrl-C ends all of them")
        cluster.wait(say)


def _has_left(paths: Paths, member: str) -> bool:
    """True if a member is out of service.

    Raises:
        MemberError: the others have shut it out instead.
    """
    states = [each["state"] for each in _ask(paths, "/cluster")["members"] if each["member_id"] == member]
    if "fenced" in states:
        raise MemberError(
            f"{member} was fenced before it had ended its turns: the others take its sessions over",
            hint="stop it; what was stored is safe, and a turn that ran there counts as interrupted",
        )
    return states in ([], ["left"])


def _ask(paths: Paths, path: str, *, post: bool = False) -> dict[str, Any]:
    running = find_running(paths)
    if running is None:
        raise NotReadyError(f"no daemon serves {paths.home}", hint="start one: amplifierd start")

    async def ask() -> dict[str, Any]:
        from amplifierd.client.daemon_client import DaemonClient  # for the commands that ask a daemon

        async with DaemonClient.of(running, paths) as client:
            return await (client.post(path) if post else client.get(path))

    return asyncio.run(ask())


def _line(member: Mapping[str, Any]) -> str:
    load = member["load"]
    at = member["address"] or f"{member['kind']} {member['pid']} on {member['host']}"
    own = "  (this one)" if member["is_self"] else ""
    held = f"{member['holds']} held, {load.get('turns', 0)} turns"
    return f"{member['member_id']}  {member['state']}  {member['version']}  {at}  {held}{own}"
