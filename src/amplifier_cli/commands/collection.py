"""`amplifier collection`: where profiles come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import Force, confirm, pick, say
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json, Offline
from amplifier_cli.session_choice import absolute_source
from amplifier_cli.terminal.render import ago, counted, styled, write, write_fields, write_json, write_table
from amplifierd.home import Home
from amplifierd.profiles.collections.models import Collection, SyncResult

app = new_group(
    "List, add and update collections of profiles.\n\n"
    "A collection is a git repository, a directory or an archive that holds profiles. The collection foundation "
    "ships with Amplifier; local holds your own profiles.",
    "amplifier collection list",
    "amplifier collection add team git+https://github.com/org/profiles@v1",
    "amplifier collection sync",
)

CollectionArgument = Annotated[
    str, typer.Argument(metavar="COLLECTION", help="Its id or the start of it.", show_default=False)
]


@app.command("list", epilog=examples("amplifier collection list", "amplifier collection list --json"))
def list_collections(ctx: typer.Context, as_json: Json = False) -> None:
    """List the collections with their sources and number of profiles."""

    async def work(home: Home) -> None:
        await home.collections.extract_missing()
        found = home.collections.list()
        for issue in home.collections.warnings():
            say(f"warning: {issue}")
        if as_json:
            write_json([each.to_dict() for each in found])
            return
        rows = [(c.identifier, c.status, c.profile_count, _version(c), ago(c.synced_at), c.source) for c in found]
        write_table(("COLLECTION", "STATUS", "PROFILES", "VERSION", "SYNCED", "SOURCE"), rows)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier collection show foundation"))
def show(ctx: typer.Context, collection: CollectionArgument, as_json: Json = False) -> None:
    """Show a collection's profiles, agents, context files and modules."""

    async def work(home: Home) -> None:
        await home.collections.extract_missing()
        found = home.collections.get(_picked(home, collection))
        beside = await home.collections.inventory(found.identifier)
        if as_json:
            write_json({**found.to_dict(), "inventory": asdict(beside)})
            return
        _write_about(found)
        held = {"agents": beside.agents, "context": beside.context, "modules": beside.modules}
        write_fields({**held, "scenario tools": beside.scenario_tools, **beside.metadata})
        rows = [(f"{found.identifier}/{each.name}", each.version, each.status, each.path) for each in found.profiles]
        write()
        write_table(("PROFILE", "VERSION", "STATUS", "FILE"), rows, empty="It has no profiles")

    in_home(ctx, work)


@app.command(
    epilog=examples(
        "amplifier collection add team git+https://github.com/org/profiles@v1",
        "amplifier collection add mine ./my-profiles",
    )
)
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its registered name.", show_default=False)],
    source: Annotated[
        str, typer.Argument(help="A git+ address, a directory, or an archive with profiles in it.", show_default=False)
    ],
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile its profiles now.", show_default=False)
    ] = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Add a collection and compile its profiles. One that cannot be fetched is not added."""

    async def work(home: Home) -> None:
        result = await home.collections.add(name, absolute_source(source), compile=compile)
        if as_json:
            write_json(asdict(result))
            return
        write(result.message)
        if result.warning:
            say(f"warning: {result.warning}")
        for profile in home.collections.get(name).profiles:
            is_usable = profile.name not in result.unusable and profile.status != "invalid"
            does = "amplifier run --profile" if is_usable else "cannot run; see amplifier profile compile"
            write(f"  {name}/{profile.name}: {does} {name}/{profile.name}")

    in_home(ctx, work, offline=offline or None)


@app.command(epilog=examples("amplifier collection remove team"))
def remove(ctx: typer.Context, collection: CollectionArgument, force: Force = False) -> None:
    """Remove a collection and its profiles; --force does so even while a session uses them."""

    async def work(home: Home) -> None:
        name = _picked(home, collection)
        count = home.collections.get(name).profile_count
        confirm(f"Remove the collection {name} and its {counted(count, 'profile')}?", force=force)
        await home.collections.remove(name, force=force)
        write(f"removed the collection {name}")

    in_home(ctx, work)


@app.command(
    epilog=examples(
        "amplifier collection sync", "amplifier collection sync team --check", "amplifier collection sync --json"
    )
)
def sync(
    ctx: typer.Context,
    collection: Annotated[
        list[str] | None, typer.Argument(help="Which ones; by default all that sync automatically.", show_default=False)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only show what would change.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Recompile the profiles even if nothing changed.")] = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Update collections and recompile the profiles that changed.

    Running sessions keep their builds. A collection that cannot be updated stays as it was, and the exit code is 1.
    """

    async def work(home: Home) -> Mapping[str, SyncResult]:
        ids = [_picked(home, each) for each in collection or ()] or None
        return await home.collections.sync(ids, check=check, force_compile=force)

    results = in_home(ctx, work, offline=offline or None)
    if as_json:
        write_json({name: result.to_dict() for name, result in results.items()})
    else:
        for name, result in results.items():
            _write_result(name, result)
    if any(result.status == "error" for result in results.values()):
        raise typer.Exit(ExitCode.FAILURE)


def _picked(home: Home, typed: str) -> str:
    known = [each.identifier for each in home.collections.list()]
    return pick(typed, {*known, "local"}, "collection", see="amplifier collection list shows them")


def _version(collection: Collection) -> str:
    return (collection.commit or "")[:8]


def _write_about(collection: Collection) -> None:
    write_fields(
        {
            "collection": collection.identifier,
            "source": collection.source,
            "status": collection.status,
            "commit": collection.commit,
            "synced": ago(collection.synced_at),
        }
    )
    for issue in collection.warnings:
        say(f"warning: {issue}")


def _write_result(name: str, result: SyncResult) -> None:
    before, after = (result.commit_before or "")[:8], (result.commit_after or "")[:8]
    moved = f" {before} → {after}" if before and after and before != after else ""
    write(f"{name}: {styled(result.status, 'red' if result.status == 'error' else 'green')}{moved}")
    for profile, outcome in result.profiles.items():
        if outcome != "unchanged":
            write(f"  {profile}: {outcome}")
    for text in (*map(str, result.errors), *result.warnings):
        say(f"  {text}")
