"""The home that a command works in: opened, and everything in it closed at the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import typer

import amplifierd
from amplifierd.home import Home

from .config import ResolvedConfig
from .failures import say
from .invocation import Invocation, invocation_of
from .logs import logging_to
from .progress import ProgressLine

T = TypeVar("T")


@asynccontextmanager
async def opened_home(
    invocation: Invocation, *, offline: bool | None = None, config: ResolvedConfig | None = None
) -> AsyncIterator[Home]:
    """Open the home that the command line names; its sessions are closed afterwards.

    With `config`, the modules of the project may run that it trusts.
    """
    progress = ProgressLine()
    home = amplifierd.open_home(invocation.home, offline=offline, progress=progress)
    if config is not None and config.is_trusted and config.files.of_project():
        from .project_overlay import with_project  # few projects have something of their own

        home = with_project(home, config)
    for warning in home.settings.warnings:
        say(f"warning: {warning}")
    with logging_to(home.paths.logs, debug=invocation.debug, scrub=partial(_scrubbed, home)):
        try:
            yield home
        finally:
            progress.clear()
            if "sessions" in vars(home):  # otherwise they were not used
                await home.sessions.close()


def _scrubbed(home: Home, text: str) -> str:
    """Return a text without the secrets of the environment and of the sessions that are open."""
    from amplifierd.sessions.secret_values import SecretValues  # loaded when there is something to log

    secrets = home.sessions.runtime.secrets if "sessions" in vars(home) else SecretValues.of(os.environ)
    return str(secrets.scrubbed(text))


def in_home(
    ctx: typer.Context,
    work: Callable[[Home], Awaitable[T]],
    *,
    offline: bool | None = None,
    config: ResolvedConfig | None = None,
) -> T:
    """Do something in the home of a command; with `config`, also with the modules of the project that it trusts."""

    async def opened() -> T:
        async with opened_home(invocation_of(ctx), offline=offline, config=config) as home:
            return await work(home)

    return finish(opened())


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Do what a command does, on an event loop of its own."""
    return asyncio.run(work)
