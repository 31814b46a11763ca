"""`amplifier session list`: quick, however many there are; what runs sessions is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.options import Json, invocation_of
from amplifier_cli.session_names import agent_of, short_id
from amplifier_cli.terminal.render import ago, shortened, styled, write, write_json, write_table
from amplifier_sessions.session_directory import first_prompt
from amplifier_sessions.session_list import find_page
from amplifier_sessions.session_query import SessionQuery
from amplifier_system.homes import daemon_state, ecosystem_home, sessions_are_files

if TYPE_CHECKING:
    from amplifier_sessions.session_directory import SessionSummary
    from amplifierd.home import Home
    from amplifierd.store.record import SessionRecord

    S = TypeVar("S", SessionSummary, SessionRecord)

Status = Literal["created", "active", "completed", "failed", "terminated"]

_WIDE = 100

app = single_command()


@app.command(
    epilog=examples(
        "amplifier session list", "amplifier session list --here --limit 5", "amplifier session list --deleted"
    )
)
def list_sessions(
    ctx: typer.Context,
    here: Annotated[bool, typer.Option("--here", help="Only sessions of the current directory.")] = False,
    profile: Annotated[str | None, typer.Option(metavar="ID", help="Only sessions of this profile.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only sessions in this state.")] = None,
    agents: Annotated[bool, typer.Option("--agents", help="Include the sessions of sub-agents.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted sessions that can still be restored.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many to show.")] = 20,
    as_json: Json = False,
) -> None:
    """List sessions, newest first, including those of other Amplifier applications."""
    if deleted:
        _list_deleted(ctx, limit, agents=agents, as_json=as_json)
        return
    where = str(Path.cwd()) if here else None
    query = SessionQuery(working_dir=where, profile_name=profile, status=status, roots_only=not agents, limit=limit)
    state = daemon_state(invocation_of(ctx).home)
    is_quick = not as_json and sessions_are_files(invocation_of(ctx).home)
    page = find_page(state, query, ecosystem_home() / "projects") if is_quick else None
    if page is None:
        _list_with_library(ctx, query, as_json=as_json)
    else:
        _write_list(page.sessions, page.total, query, lambda session: first_prompt(session.directory))


def _list_deleted(ctx: typer.Context, limit: int, *, agents: bool, as_json: bool) -> None:
    from amplifier_cli.open_home import in_home  # needs the whole library

    async def work(home: Home) -> None:
        found = [one for one in home.sessions.deleted() if agents or one.record.root_id == one.record.session_id]
        shown = found[:limit]
        if as_json:
            write_json([{**one.record.model_dump(mode="json"), "deleted_at": one.deleted_at} for one in shown])
            return
        rows = [
            (
                short_id(one.record.session_id),
                ago(one.deleted_at),
                one.record.turn_count,
                agent_of(one.record),
                one.record.name or "",
            )
            for one in shown
        ]
        write_table(("ID", "DELETED", "TURNS", "AGENT", "NAME"), rows, empty="There are no deleted sessions")
        _write_rest(len(shown), len(found))

    in_home(ctx, work)


def _list_with_library(ctx: typer.Context, query: SessionQuery, *, as_json: bool) -> None:
    from amplifier_cli.open_home import in_home  # needs the whole library

    async def work(home: Home) -> None:
        page = home.sessions.list(query)
        if as_json:
            write_json([record.model_dump(mode="json") for record in page.sessions])
            return
        _write_list(page.sessions, page.total, query, lambda session: _first_prompt(home, session.session_id))

    in_home(ctx, work)


def _write_list(sessions: Sequence[S], total: int, query: SessionQuery, find_prompt: Callable[[S], str]) -> None:
    rows = [
        (
            short_id(each.session_id),
            ago(each.last_activity_at),
            each.turn_count,
            agent_of(each),
            each.name or (shortened(find_prompt(each), _WIDE) if each.message_count else ""),
        )
        for each in sessions
    ]
    is_filtered = any((query.working_dir, query.profile_name, query.status))
    empty = "No session matches" if is_filtered else "There are no sessions yet: amplifier run starts one"
    write_table(("ID", "USED", "TURNS", "AGENT", "ABOUT"), rows, empty=empty)
    _write_rest(len(sessions), total)


def _write_rest(shown: int, total: int) -> None:
    if total > shown:
        write(styled(f"{shown} of {total}; -n shows more", "dim"))


def _first_prompt(home: Home, session_id: str) -> str:
    said = (message.get("content") for message in home.sessions.messages(session_id) if message.get("role") == "user")
    return next((content for content in said if isinstance(content, str)), "")
