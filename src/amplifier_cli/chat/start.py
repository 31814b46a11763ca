"""How a chat begins: with a new session, or with a stored one."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from amplifier_cli.attended_session import AttendedSession
from amplifier_cli.config import ResolvedConfig
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError
from amplifier_cli.open_home import in_home
from amplifier_cli.options import invocation_of
from amplifier_cli.project_trust import trusted_config
from amplifier_cli.resumption import resumed
from amplifier_cli.session_choice import chosen_agent, find_session, last_session
from amplifier_cli.session_names import short_id
from amplifier_cli.session_places import agreed_directory, place_for
from amplifier_cli.terminal.render import styled, write
from amplifierd.home import Home
from amplifierd.store.record import SessionRecord

from .conversation import Chat

Open = Callable[[Chat], Awaitable[AttendedSession]]


def begin_chat(
    ctx: typer.Context,
    flags: Mapping[str, Any],
    *,
    plan: Path | None = None,
    yes: bool = False,
    frozen: bool = False,
    daemon: bool | None = None,
) -> ExitCode:
    """Talk in a new session."""
    config = _config(ctx, flags)

    async def open_new(chat: Chat) -> AttendedSession:
        agent = await chosen_agent(chat.home, config, plan_file=plan, frozen=frozen)
        return await chat.place.open(agent, chat.approver, name=None)

    return _talk(ctx, config, lambda home: Path.cwd(), open_new, yes=yes, daemon=daemon)


def continue_chat(
    ctx: typer.Context,
    typed: str | None,
    *,
    flags: Mapping[str, Any] | None = None,
    yes: bool = False,
    daemon: bool | None = None,
    full: bool = False,
) -> ExitCode:
    """Talk in a stored session: the one that is meant, else the last one of this directory.

    Its last exchange is shown, or with `full` the whole conversation.
    """
    config = _config(ctx, {})

    def find_stored(home: Home) -> SessionRecord:
        return find_session(home, typed) if typed else last_session(home, Path.cwd())

    async def open_stored(chat: Chat) -> AttendedSession:
        chat.is_recalled_whole = full
        return await resumed(chat.home, chat.place, find_stored(chat.home), chat.approver, flags)

    return _talk(ctx, config, lambda home: find_stored(home).working_dir, open_stored, yes=yes, daemon=daemon)


def _config(ctx: typer.Context, flags: Mapping[str, Any]) -> ResolvedConfig:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a chat needs a terminal", hint='use amplifier run "…" in scripts and pipes')
    return trusted_config(flags, home=invocation_of(ctx).home)


def _talk(
    ctx: typer.Context,
    config: ResolvedConfig,
    directory_in: Callable[[Home], Path | str],
    open_session: Open,
    *,
    yes: bool,
    daemon: bool | None,
) -> ExitCode:
    async def work(home: Home) -> ExitCode:
        is_guarded = agreed_directory(directory_in(home), home.paths, daemon=daemon)
        async with place_for(home, False if is_guarded else daemon, config) as place:
            chat = Chat(home, config, place, yes=yes and not is_guarded)
            await chat.run(open_session(chat))
            if place.client is not None and chat.is_busy:
                write(f"the turn continues in the daemon: amplifier session attach {chat.short_id}")
        write(styled(f"session {short_id(chat.session.session_id)} is kept: amplifier continue", "dim"))
        return ExitCode.OK

    return in_home(ctx, work, offline=config.values.offline, config=config)
