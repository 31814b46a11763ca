"""One turn from the command line: its prompt in, its answer out, in the form that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, Literal, TextIO

from amplifier_cli.terminal.render import How, json_text, notify, styled, write
from amplifier_cli.terminal.terminal_page import page_for
from amplifier_system.visible import write_exactly

from .attended_session import AttendedSession, Interrupts
from .exit_codes import ExitCode
from .failures import error_lines, say
from .prompt_input import Prompt
from .session_names import missing_modules, short_id, without
from .turn_view import TurnView, summary

Output = Literal["text", "json", "jsonl"]


@contextmanager
def answers_alone() -> Iterator[TextIO]:
    """Keep a stdout that is no terminal for the answer, and yield it: what modules print goes to stderr meanwhile."""
    own = sys.stdout
    with nullcontext() if own.isatty() else redirect_stdout(sys.stderr):
        yield own


async def run_turn(
    session: AttendedSession,
    prompt: Prompt,
    *,
    output: Output,
    answers: TextIO,
    show_thinking: bool = True,
    bell_after: float = 20,
    how: How = "bell",
) -> ExitCode:
    """Run a prompt, show what happens, print the answer to `answers`; return the exit code."""
    page = page_for(answers, sys.stderr)
    view = TurnView(page, session.session_id, show_thinking=show_thinking)
    done: dict[str, Any] = {}
    with Interrupts(session, say) as interrupts:
        async for event in session.stream(prompt.text, images=prompt.images):
            if output == "jsonl":
                _write_now(json_text(event), answers)
            elif output == "text":
                view.show(event)
            if event["event"] == "execution:done" and event["session_id"] == session.session_id:
                done = event["data"]
    view.end()
    if output == "json":
        _write_now(json_text(_result(session, done)), answers)
    elif output == "text":
        with redirect_stdout(answers):
            conclude(session, done, bell_after, how)
    return exit_code(done, interrupts.count)


def conclude(session: AttendedSession, done: dict[str, Any], bell_after: float, how: How) -> None:
    """Print how a turn ended: its answer into a pipe, on a terminal what it used."""
    is_terminal = sys.stdout.isatty()
    if not is_terminal and done.get("response"):
        write_exactly(done["response"])
    if error := done.get("error"):
        for line in error_lines(error):
            say(line)
    if is_terminal:
        usage = done.get("usage") or {}
        ending = "" if done.get("status") == "completed" else f"{done.get('status')} · "
        lacking = "".join(f" · {words}" for words in filter(None, [without(missing_modules(session.record))]))
        write(styled(f"{ending}{summary(usage)}{lacking} · session {short_id(session.session_id)}", "dim"))
        if (usage.get("seconds") or 0) >= bell_after > 0:
            notify(f"the turn has ended: {done.get('status')}", how, sys.stdout)


def _result(session: AttendedSession, done: dict[str, Any]) -> dict[str, Any]:
    record = session.record
    about = {"session_id": session.session_id, "profile": record.profile_name, "bundle": record.bundle}
    keys = ("status", "response", "finish_reason", "turn", "usage", "error")
    ended = {key: done.get(key) for key in keys}
    return {**about, "model": record.model, **ended, "missing": missing_modules(record)}


def exit_code(done: dict[str, Any], interruptions: int = 0) -> ExitCode:
    """Return the exit code for how a turn ended."""
    if interruptions and done.get("status") != "completed":
        return ExitCode.INTERRUPTED
    return ExitCode.OK if done.get("status") == "completed" else ExitCode.FAILURE


def _write_now(text: str, stream: TextIO) -> None:
    write(text, stream)
    stream.flush()
