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

from .failures import say
from .invocation import Invocation, invocation_of
from .logs import logging_to
from .progress import ProgressLine

T = TypeVar("T")


@asynccontextmanager
async def opened_home(invocation: Invocation, *, offline: bool | None = None) -> AsyncIterator[Home]:
    """Open the home that the command line names; its sessions are closed afterwards."""
    progress = ProgressLine()
    home = amplifierd.open_home(invocation.home, offline=offline, progress=progress)
    for warning in home.settings.warnings:
        say(f"warning: {warning}")
    with logging_to(home.paths.logs, debug=invocation.debug, scrub=partial(_scrubbed, home)):
        try:
            yield home
        finally:
            progress.clear()
            if "sessions" in vars(home):  # nobody asked for them else
                await home.sessions.close()


def _scrubbed(home: Home, text: str) -> str:
    """Return a text without the secrets of the environment and of the sessions that are open."""
    from amplifierd.sessions.secret_values import SecretValues  # loaded when there is something to log

    secrets = home.sessions.runtime.secrets if "sessions" in vars(home) else SecretValues.of(os.environ)
    return str(secrets.scrubbed(text))


def in_home(ctx: typer.Context, work: Callable[[Home], Awaitable[T]], *, offline: bool | None = None) -> T:
    """Do something in the home of a command."""

    async def opened() -> T:
        async with opened_home(invocation_of(ctx), offline=offline) as home:
            return await work(home)

    return finish(opened())


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Do what a command does, on an event loop of its own."""
    return asyncio.run(work)
