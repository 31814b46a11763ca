"""What `amplifier session` changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.failures import Force, UsageError, confirm, say
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json
from amplifier_cli.session_choice import find_profile, find_session
from amplifier_cli.session_names import short_id
from amplifier_cli.session_places import here_or_in_daemon
from amplifier_cli.terminal.render import counted, write, write_json
from amplifierd.home import Home

from .session_reading import SessionArgument

if TYPE_CHECKING:
    from amplifierd.checkpoints import UndoResult
    from amplifierd.client.daemon_client import DaemonClient

app = new_group("What changes sessions.")


@app.command(epilog=examples("amplifier session fork last", "amplifier session fork 3fa9a888 --turn 2"))
def fork(
    ctx: typer.Context,
    session: SessionArgument,
    turn: Annotated[int | None, typer.Option(min=1, help="The last turn to copy; by default all.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="ID", help="Use another profile in the new session.")] = None,
    name: Annotated[str | None, typer.Option(help="Its name.")] = None,
    as_json: Json = False,
) -> None:
    """Start a new session from a copy of another one, up to a turn."""

    async def work(home: Home) -> None:
        record = find_session(home, session)
        if not record.turn_count:
            raise UsageError(f"session {short_id(record.session_id)} has no turn to fork from", hint="run a turn first")
        chosen = str(await find_profile(home, profile)) if profile else None
        forked = await home.sessions.fork(record.session_id, turn, profile=chosen, name=name)
        if as_json:
            write_json(forked.model_dump(mode="json"))
        else:
            short = short_id(forked.session_id)
            write(f"session {short} continues from turn {forked.forked_from_turn}: amplifier session resume {short}")

    in_home(ctx, work)


@app.command("take-over", epilog=examples("amplifier session take-over 3fa9a888"))
def take_over(ctx: typer.Context, session: SessionArgument, force: Force = False) -> None:
    """Take a session from a program that holds it and cannot let it go.

    A program that is gone is noticed by itself. This is for one that hangs, or runs where it cannot be reached: it can
    write nothing into the session any more, and a turn that it runs counts as interrupted.
    """

    async def work(home: Home) -> None:
        record = find_session(home, session)
        short = short_id(record.session_id)
        holder = home.sessions.holder(record.session_id)
        if holder is None:
            write(f"session {short} is free: amplifier session resume {short}")
            return
        confirm(f"Take session {short} from {holder.holder}?", force=force)
        await home.sessions.free(record.session_id)
        write(f"session {short} was taken from {holder.holder}: amplifier session resume {short}")

    in_home(ctx, work)


@app.command(epilog=examples('amplifier session rename last "The migration"'))
def rename(
    ctx: typer.Context,
    session: SessionArgument,
    name: Annotated[str, typer.Argument(help="The new name; an empty one removes it.", show_default=False)],
) -> None:
    """Give a session a name."""

    async def work(home: Home) -> None:
        record = find_session(home, session)
        path, sessions = f"/sessions/{record.session_id}", home.sessions
        await here_or_in_daemon(
            home, sessions.rename(record.session_id, name), lambda daemon: daemon.patch(path, {"name": name})
        )
        write(
            f"session {short_id(record.session_id)} is called {name!r}" if name else "the session no longer has a name"
        )

    in_home(ctx, work)


@app.command(epilog=examples("amplifier session undo last", "amplifier session undo last --files"))
def undo(
    ctx: typer.Context,
    session: SessionArgument,
    turn: Annotated[int | None, typer.Option(min=1, help="The turn; by default the last one.")] = None,
    files: Annotated[bool, typer.Option("--files", help="Only the files.")] = False,
    conversation: Annotated[bool, typer.Option("--conversation", help="Only the conversation.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also restore files that were changed by someone else since.")
    ] = False,
) -> None:
    """Undo a turn: in the files, in the conversation, or both."""
    if files and conversation:
        raise UsageError("--files and --conversation exclude each other", hint="leave both out to undo both")

    async def work(home: Home) -> None:
        record = find_session(home, session)
        number = turn or record.turn_count
        if not number:
            raise UsageError(f"session {short_id(record.session_id)} has no turn", hint="there is nothing to undo")
        what: Literal["files", "conversation", "both"] = (
            "files" if files else "conversation" if conversation else "both"
        )
        body = {"turn": number, "what": what, "force": force}
        path, sessions = f"/sessions/{record.session_id}/undo", home.sessions

        async def undo_there(daemon: DaemonClient) -> UndoResult | None:
            from amplifierd.client.remote_session import undone  # few commands speak to a daemon

            return undone(await daemon.post(path, body))

        here = sessions.undo(record.session_id, number, what=what, force=force)
        result = await here_or_in_daemon(home, here, undo_there)
        if result is not None and not result.done:
            names = ", ".join(result.foreign)
            raise UsageError(
                f"changed by someone else since: {names}", hint="amplifier session undo --force restores these too"
            )
        restored = len(result.restored) if result is not None else 0
        lines = [] if what == "files" else ["removed from the conversation"]
        lines += [] if what == "conversation" else [f"{counted(restored, 'file')} restored"]
        write(f"turn {number} is undone: {', '.join(lines)}")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier session export last talk.zip"))
def export(
    ctx: typer.Context,
    session: SessionArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.", show_default=False)],
    mask: Annotated[bool, typer.Option("--mask", help="Leave out the messages.")] = False,
) -> None:
    """Export a session, with those of its sub-agents, to one signed file."""

    async def work(home: Home) -> None:
        record = find_session(home, session)
        written = await home.sessions.export(record.session_id, file, mask_messages=mask, progress=home.progress)
        write(f"{written.path} holds {counted(len(written.session_ids), 'session')}, signed by {written.signer}")
        _report_omitted(written.left_out)

    in_home(ctx, work)


@app.command("import", epilog=examples("amplifier session import talk.zip"))
def import_(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file written by amplifier session export.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Import an exported session into this home; a file that was tampered with is refused."""
    if not file.is_file():
        raise UsageError(f"{file} is not a file", hint="name one that amplifier session export wrote")

    async def work(home: Home) -> None:
        found = await home.sessions.import_(file, progress=home.progress)
        if as_json:
            write_json(
                {"session": found.record.model_dump(mode="json"), "ids": dict(found.ids), "verified": found.verified}
            )
            return
        short = short_id(found.record.session_id)
        write(f"imported session {short}: amplifier session resume {short}")
        if not found.verified:
            say("note: this home does not know who signed it")
        _report_omitted(found.left_out)

    in_home(ctx, work)


def _report_omitted(places: tuple[str, ...]) -> None:
    if places:
        say(f"note: the file does not contain the secrets of {', '.join(places)}")


@app.command(epilog=examples("amplifier session cleanup --older-than 90 --dry-run"))
def cleanup(
    ctx: typer.Context,
    older_than: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="Only sessions that ended this long ago.")
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which.")] = False,
    force: Force = False,
) -> None:
    """Permanently remove sessions that ended some time ago, and deleted ones whose time in the trash is over.

    Sessions that have not ended are kept. The setting sessions.trash_days says how long deleted ones are.
    """

    async def work(home: Home) -> None:
        old = await home.sessions.cleanup(older_than, dry_run=True)
        trashed = await home.sessions.empty_trash(dry_run=True)
        for session_id in (*old, *trashed):
            write(short_id(session_id))
        count = len(old) + len(trashed)
        if count and not dry_run:
            confirm(f"Remove {counted(count, 'session')} for good?", force=force)
            await home.sessions.cleanup(older_than)
            await home.sessions.empty_trash()
        write(f"{counted(count, 'session')} {'would be ' if dry_run else ''}removed")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier session repair last"))
def repair(ctx: typer.Context, session: SessionArgument, as_json: Json = False) -> None:
    """Repair a session that a crash cut off in the middle of a turn; resuming it does the same."""

    async def work(home: Home) -> None:
        report = await home.sessions.repair(find_session(home, session).session_id)
        if as_json:
            write_json(report.to_json())
        elif not report:
            write("there is nothing to repair")
        else:
            for call in report.calls:
                write(f"{call.tool_name}: {call.state}")
            write("the session is repaired")

    in_home(ctx, work)
