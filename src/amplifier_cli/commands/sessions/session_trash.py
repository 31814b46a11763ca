"""`amplifier session delete` and `restore`: into the trash and out of it."""

from __future__ import annotations

from typing import Annotated

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.failures import Force, UsageError, confirm, pick
from amplifier_cli.open_home import in_home
from amplifier_cli.session_choice import find_session
from amplifier_cli.session_names import PREFIX, short_id
from amplifier_cli.session_places import here_or_in_daemon
from amplifier_cli.terminal.render import write
from amplifierd.home import Home
from amplifierd.store.record import SessionRecord

from .session_reading import SessionArgument

app = new_group("What deletes sessions and restores them.")


@app.command(epilog=examples("amplifier session delete 3fa9a888", "amplifier session delete 3fa9a888 --forever"))
def delete(
    ctx: typer.Context,
    session: SessionArgument,
    forever: Annotated[
        bool, typer.Option("--forever", help="Delete permanently, even one already in the trash.")
    ] = False,
    force: Force = False,
) -> None:
    """Delete a session and those of its sub-agents; amplifier session restore brings them back.

    They can be restored for as many days as the setting sessions.trash_days says. A session that is running in the
    daemon is stopped and deleted only with --force.
    """

    async def work(home: Home) -> None:
        is_for_good = forever or not home.settings.sessions.trash_days
        record = _find_deleted(home, session) if forever else None
        question = f"Delete session %s{' for good' if is_for_good else ''}?"
        if record is not None:
            confirm(question % _about(record), force=force)
            await home.sessions.purge(record.session_id)
        else:
            record = find_session(home, session)
            confirm(question % _about(record), force=force)
            path = f"/sessions/{record.session_id}?force={force}&forever={forever}"
            here = home.sessions.delete(record.session_id, forever=forever)
            await here_or_in_daemon(home, here, lambda daemon: daemon.delete(path))
        short = short_id(record.session_id)
        back = "permanently deleted" if is_for_good else f"deleted; to bring it back: amplifier session restore {short}"
        write(f"session {short} is {back}")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier session list --deleted", "amplifier session restore 3fa9a888"))
def restore(ctx: typer.Context, session: SessionArgument) -> None:
    """Restore a deleted session, with those of its sub-agents."""

    async def work(home: Home) -> None:
        record = _find_deleted(home, session)
        if record is None:
            raise UsageError(
                f"there is no deleted session {session!r}", hint="amplifier session list --deleted shows them"
            )
        await home.sessions.restore(record.session_id)
        short = short_id(record.session_id)
        write(f"session {short} is restored: amplifier session resume {short}")

    in_home(ctx, work)


def _find_deleted(home: Home, typed: str) -> SessionRecord | None:
    """Return the deleted session that an id, a unique beginning of one, its name or `last` means."""
    known: dict[str, SessionRecord] = {}
    for one in home.sessions.deleted():
        known.setdefault(one.record.session_id, one.record)
    roots = [record for record in known.values() if record.root_id not in known or record.root_id == record.session_id]
    if typed == "last":
        return roots[0] if roots else None
    named = [record for record in roots if record.name == typed]
    if len(named) == 1:
        return named[0]
    if not any(session_id.removeprefix(PREFIX).startswith(typed.removeprefix(PREFIX)) for session_id in known):
        return None
    return known[pick(typed, known, "deleted session", key=lambda each: each.removeprefix(PREFIX))]


def _about(record: SessionRecord) -> str:
    return f"{short_id(record.session_id)} ({record.name or f'{record.turn_count} turns'})"
