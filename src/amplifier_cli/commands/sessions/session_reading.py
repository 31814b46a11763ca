"""What `amplifier session` reads and opens."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.open_home import in_home
from amplifier_cli.options import (
    Daemon,
    Effort,
    Full,
    Json,
    MaxCost,
    MaxIterations,
    Model,
    Permissions,
    PlanFile,
    Provider,
    Yes,
)
from amplifier_cli.session_choice import find_profile, find_session, read_plan_file
from amplifier_cli.session_names import TAINTED, agent_of, short_id
from amplifier_cli.terminal.render import (
    ago,
    message_text,
    money,
    shortened,
    styled,
    write,
    write_fields,
    write_json,
    write_table,
)
from amplifier_core.utils.tool_messages import calls_in
from amplifier_system.visible import visible, write_exactly
from amplifierd.exceptions import MountPlanMissingError
from amplifierd.home import Home
from amplifierd.store.record import SessionRecord

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="Its id or the start of it, its name, or last.", show_default=False)
]
_WIDE = 100

app = new_group("What reads and opens sessions.")


@app.command(epilog=examples("amplifier session show last", "amplifier session show 3fa9a888 --json"))
def show(ctx: typer.Context, session: SessionArgument, as_json: Json = False) -> None:
    """Show a session's messages and usage; --json adds its plan."""

    async def work(home: Home) -> None:
        record = find_session(home, session)
        messages = home.sessions.messages(record.session_id)
        if as_json:
            write_json(
                {"session": record.model_dump(mode="json"), "plan": _plan_of(home, record), "messages": messages}
            )
            return
        write_fields(_about(record))
        for message in messages:
            _write_message(message)

    in_home(ctx, work)


@app.command(epilog=examples('amplifier session search "database migration"'))
def search(
    ctx: typer.Context,
    text: Annotated[list[str], typer.Argument(help="The words to look for.", show_default=False)],
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many to show.")] = 20,
    as_json: Json = False,
) -> None:
    """Find sessions by words in their names and messages."""

    async def work(home: Home) -> None:
        hits = home.sessions.search(" ".join(text), limit=limit)
        if as_json:
            found = [
                {"session": hit.record.model_dump(mode="json"), "snippet": hit.snippet, "turn": hit.turn}
                for hit in hits
            ]
            write_json(found)
            return
        rows = [
            (short_id(hit.record.session_id), ago(hit.record.last_activity_at), hit.turn, hit.snippet) for hit in hits
        ]
        write_table(("ID", "USED", "TURN", "FOUND"), rows, empty="Nothing was found")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier session resume last", "amplifier session resume 3fa9a888 --profile coding"))
def resume(
    ctx: typer.Context,
    session: SessionArgument,
    profile: Annotated[str | None, typer.Option(metavar="ID", help="Continue with another profile.")] = None,
    provider: Provider = None,
    model: Model = None,
    effort: Effort = None,
    max_iterations: MaxIterations = None,
    max_cost: MaxCost = None,
    permissions: Permissions = None,
    yes: Yes = False,
    daemon: Daemon = None,
    full: Full = False,
) -> None:
    """Continue a session in a chat."""
    from amplifier_cli.chat.start import continue_chat  # needs a terminal's libraries

    flags: dict[str, Any] = {"profile": profile, "provider": provider, "model": model, "effort": effort}
    flags |= {"max_iterations": max_iterations, "max_cost": max_cost, "permissions": permissions}
    raise typer.Exit(continue_chat(ctx, session, flags=flags, yes=yes, daemon=daemon, full=full))


@app.command(epilog=examples("amplifier session replay last", "amplifier session replay last --profile coding"))
def replay(
    ctx: typer.Context,
    session: SessionArgument,
    profile: Annotated[str | None, typer.Option(metavar="ID", help="Replay it with another profile.")] = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """Replay a recorded session without a model or tools, and show where it first differs.

    The exit code is 0 if the replay matches, 1 if it differs, 2 if the session cannot be replayed.
    """

    async def work(home: Home) -> int:
        record = find_session(home, session)
        other = str(await find_profile(home, profile)) if profile else None
        result = await home.sessions.replay(
            record.session_id, profile=other, plan=read_plan_file(plan) if plan else None
        )
        write_json(result.to_json()) if as_json else write(str(result))
        return result.exit_status

    raise typer.Exit(in_home(ctx, work))


@app.command(epilog=examples("amplifier session diff last", "amplifier session diff last --turn 2"))
def diff(
    ctx: typer.Context,
    session: SessionArgument,
    turn: Annotated[int | None, typer.Option(min=1, help="The turn; by default the last one.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a turn changed in the files of the working directory."""

    async def work(home: Home) -> None:
        record = find_session(home, session)
        changes = await home.sessions.changes(record.session_id, turn or record.turn_count)
        if as_json:
            write_json(vars(changes))
            return
        if changes.reason:
            write(styled(changes.reason, "yellow"))
        write_exactly(changes.diff.rstrip("\n") or "No file was changed")

    in_home(ctx, work)


def _plan_of(home: Home, record: SessionRecord) -> dict[str, Any] | None:
    try:
        return home.sessions.plan(record.session_id)
    except MountPlanMissingError:
        return None


def _about(record: SessionRecord) -> dict[str, Any]:
    used = record.usage_tree or record.usage or {}
    return {
        "session": record.session_id,
        "name": record.name,
        "agent": agent_of(record),
        "model": record.model,
        "directory": record.working_dir,
        "status": record.status,
        "permissions": record.permission_level,
        "tainted": TAINTED if record.tainted else None,
        "begun": ago(record.created_at),
        "used": ago(record.last_activity_at),
        "turns": record.turn_count,
        "tokens": (used.get("tokens") or {}).get("total"),
        "cost": money(used.get("cost_usd")),
        "forked from": record.parent_session_id,
        "last error": (record.last_error or {}).get("detail"),
        "not there": [str(each["module_id"]) for each in record.load_warnings if each.get("module_id")],
        "warnings": [str(each["message"]) for each in record.load_warnings if each.get("message")],
    }


def _write_message(message: dict[str, Any]) -> None:
    role, content = str(message.get("role")), message.get("content")
    if role == "tool":
        write(styled(f"  └ {shortened(_readable(message_text(content)), _WIDE)}", "dim"))
        return
    text = visible(message_text(content))
    if text.strip():
        write(f"\n{styled('You' if role == 'user' else role.capitalize(), 'bold')}\n{text.strip()}")
    for call in calls_in(message):
        write(styled(f"● {call.name}", "cyan"))


def _readable(text: str) -> str:
    """Return JSON with its characters as they are, other text unchanged."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        return text
