"""`amplifier store`: where the sessions are kept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError, say
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json
from amplifier_cli.terminal.render import counted, write, write_fields, write_json, write_table
from amplifierd.home import Home
from amplifierd.store.backup import Backup, write_backup
from amplifierd.store.copying import SessionCopies, SessionOutcome, compare, compare_trash
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionStore, StoreSnapshot
from amplifierd.store.store_choice import open_store
from amplifierd.store_address import FILES, StoreAddress

app = new_group(
    "Inspect, migrate, verify and back up the session store.\n\n"
    "The setting store says where sessions are kept: in files of this home, or in a PostgreSQL database that "
    "machines share. A PLACE is the word files, an address such as postgresql://user@host/database, or the "
    "directory of a backup.",
    "amplifier store status",
    "amplifier store migrate postgresql://user@host/amplifier",
    "amplifier store backup ~/sessions-backup",
)

_MIB = 1024 * 1024


@app.command(epilog=examples("amplifier store status", "amplifier store status --json"))
def status(ctx: typer.Context, as_json: Json = False) -> None:
    """Say where the sessions are kept, how many there are, and whether the store is healthy."""

    async def work(home: Home) -> None:
        found = await home.sessions.runtime.store.status()
        if as_json:
            write_json(found)
            return
        warnings, size = found.pop("warnings", []), found.pop("bytes", None)
        shown = {name.replace("_", " "): value for name, value in found.items() if value is not None}
        write_fields({**shown, **({} if size is None else {"size": f"{size / _MIB:.1f} MiB"})})
        for warning in warnings:
            say(f"warning: {warning}")

    in_home(ctx, work)


@app.command(
    epilog=examples(
        "amplifier store migrate postgresql://user@host/amplifier",
        "amplifier store migrate files --from postgresql://user@host/amplifier",
        "amplifier store migrate files --from ~/sessions-backup",
    )
)
def migrate(
    ctx: typer.Context,
    to: Annotated[str, typer.Argument(metavar="PLACE", help="files, or postgresql://…", show_default=False)],
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION", help="Session ids; by default all.", show_default=False),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="Where they are now; by default what the setting says."),
    ] = None,
    move: Annotated[bool, typer.Option("--move", help="Delete each original once its copy is verified.")] = False,
    as_json: Json = False,
) -> None:
    """Copy sessions to another place, verifying each by its hash; if interrupted, run it again to continue.

    Sessions that are already there are not changed. A session in use is skipped: close it or stop the daemon, and run
    this again. Without ids, deleted sessions that can be restored are copied too, into the trash there. When all is
    copied, change the setting store.
    """

    async def work(home: Home) -> None:
        origin, target = source or home.settings.store.secret_text, _address(home, to)
        if target.place == (_address(home, origin).place if _is_store(origin) else None):
            raise UsageError("both places are the same", hint="--from says where the sessions are")
        async with AsyncExitStack() as opened:
            here = await opened.enter_async_context(_place(home, origin))
            there = await opened.enter_async_context(_opened(home, target))
            async with _snapshot(here) as snapshot:
                wanted = sessions or await snapshot.session_ids()
            copies = SessionCopies(here, there, Holder.of_this_process("command"), move=move)
            outcomes = [outcome async for outcome in copies.run(wanted)]
            if not sessions:
                outcomes += [outcome async for outcome in copies.run_trash()]
        _report(outcomes, as_json=as_json)
        if target.place != home.settings.store.place and not as_json:
            write(f"to use them there, set store to {target.place} in {home.paths.settings_file}")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier store verify", "amplifier store verify postgresql://user@host/amplifier"))
def verify(
    ctx: typer.Context,
    other: Annotated[
        str | None, typer.Argument(metavar="PLACE", help="files, postgresql://… or a backup.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every session; with a PLACE, compare the two by hash.

    Between two stores, deleted sessions that can be restored are compared too.
    """

    async def work(home: Home) -> None:
        async with AsyncExitStack() as opened:
            store = home.sessions.runtime.store
            place: SessionStore | Backup = store
            here = await opened.enter_async_context(store.snapshot())
            there: StoreSnapshot = here
            if other is not None:
                place = await opened.enter_async_context(_place(home, other))
                there = await opened.enter_async_context(_snapshot(place))
            outcomes = [outcome async for outcome in compare(here, there, await here.session_ids())]
            if not isinstance(place, Backup):
                outcomes += [outcome async for outcome in compare_trash(store, place)]
        _report(outcomes, as_json=as_json)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier store backup ~/sessions-backup"))
def backup(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A new directory.", show_default=False)],
) -> None:
    """Write a consistent snapshot of all sessions into a directory; if interrupted, run it again to finish.

    amplifier store migrate PLACE --from DIRECTORY restores them. Deleted sessions are not included, nor are
    checkpoints, which stay on their machines.
    """

    async def work(home: Home) -> None:
        place, count = _directory(directory), 0
        async with home.sessions.runtime.store.snapshot() as snapshot:
            async for _ in write_backup(snapshot, place, of=str(home.settings.store)):
                count += 1
        write(f"{counted(count, 'session')} in {place}")

    in_home(ctx, work)


def _directory(path: Path) -> Path:
    return path.expanduser().absolute()


def _is_store(text: str) -> bool:
    """True if a place is a store; a backup otherwise."""
    return text == FILES or "://" in text


def _address(home: Home, text: str) -> StoreAddress:
    try:
        address = StoreAddress.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return address.resolved(lambda name: os.environ.get(name) or home.keys.find(name))


@asynccontextmanager
async def _opened(home: Home, address: StoreAddress) -> AsyncIterator[SessionStore]:
    store = open_store(home.paths, address, program="command")
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _place(home: Home, text: str) -> AsyncIterator[SessionStore | Backup]:
    """Open a store, or a backup where a directory is named."""
    if not _is_store(text):
        yield Backup.open(_directory(Path(text)))
        return
    async with _opened(home, _address(home, text)) as store:
        yield store


@asynccontextmanager
async def _snapshot(place: SessionStore | Backup) -> AsyncIterator[StoreSnapshot]:
    if isinstance(place, Backup):
        yield place
        return
    async with place.snapshot() as snapshot:
        yield snapshot


def _report(outcomes: Sequence[SessionOutcome], *, as_json: bool) -> None:
    """Say what became of sessions; something that is wrong with one is a failure of the command."""
    wrong = [outcome for outcome in outcomes if not outcome.is_good]
    counts = Counter(f"{one.outcome} (deleted)" if one.deleted_at else one.outcome for one in outcomes)
    if as_json:
        write_json({"counts": counts, "wrong": [asdict(outcome) for outcome in wrong]})
    else:
        write(", ".join(f"{count} {name}" for name, count in counts.items()) or "there is no session")
        if wrong:
            write_table(("SESSION", "", "WHY"), [(one.session_id, one.outcome, one.why) for one in wrong])
    if wrong:
        raise typer.Exit(ExitCode.FAILURE)
