"""`amplifier session attach`: join a session that runs in the daemon."""

from __future__ import annotations

import sys
from typing import Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import ResolvedConfig
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import say
from amplifier_cli.one_turn import conclude, exit_code
from amplifier_cli.open_home import in_home
from amplifier_cli.options import invocation_of
from amplifier_cli.project_trust import trusted_config
from amplifier_cli.session_choice import find_session
from amplifier_cli.session_names import short_id
from amplifier_cli.session_places import daemon_of, lost_with
from amplifier_cli.terminal.terminal_page import page_for
from amplifier_cli.turn_view import TurnView
from amplifierd.client.daemon_client import DaemonClient
from amplifierd.client.remote_session import RemoteSession
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import LeaveOpen
from amplifierd.store.record import SessionRecord

from .session_reading import SessionArgument

app = new_group("What joins sessions.")


@app.command(epilog=examples("amplifier session attach last", "amplifier session attach 3fa9a888"))
def attach(ctx: typer.Context, session: SessionArgument) -> None:
    """Join a session that runs in the daemon: watch it, steer it and answer its questions.

    Enter steers the running turn or, between turns, sends the next prompt; /cancel stops the turn. Ctrl-C leaves and
    the turn continues. In a pipe, the answer of the running turn is printed when it is ready; questions are left for
    others to answer.
    """
    config = trusted_config({}, home=invocation_of(ctx).home)

    async def work(home: Home) -> ExitCode:
        async with daemon_of(home.paths, True, config) as client:
            assert client is not None
            record = find_session(home, session)
            with lost_with(record.session_id):
                if not (sys.stdin.isatty() and sys.stdout.isatty()):
                    return await _followed(client, record, config)
                from amplifier_cli.chat.attached_terminal import Attached  # needs a terminal's libraries

                await Attached(client, record, home.paths, config.values).run()
                return ExitCode.OK

    raise typer.Exit(in_home(ctx, work))


async def _followed(client: DaemonClient, record: SessionRecord, config: ResolvedConfig) -> ExitCode:
    """Show the running turn to its end."""
    values, done = config.values, dict[str, Any]()
    view = TurnView(page_for(sys.stdout, sys.stderr), record.session_id, show_thinking=values.show_thinking)
    async with await RemoteSession.find(client, record.session_id, LeaveOpen()) as session:
        async for event in session.watch():
            if event["event"] == "stream:connected":
                if session.activity in ("idle", None):
                    say(f"note: no turn is running in session {short_id(session.session_id)}")
                    return ExitCode.OK
                say(f"note: session {short_id(session.session_id)} is running; its answer follows")
            view.show(event)
            if view.is_end(event):
                done = event["data"]
                break
        view.end()
        conclude(session, done, values.bell_after, values.notify)
    return exit_code(done)
