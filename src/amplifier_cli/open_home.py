"""The home that a command works in: opened, and everything in it closed at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

import amplifierd
from amplifier_cli.terminal.render import ERASE_LINE, shortened
from amplifier_system.visible import screen, visible
from amplifierd.home import Home

from .config import ResolvedConfig
from .failures import say
from .options import Invocation, invocation_of

if TYPE_CHECKING:
    from amplifier_foundation.sources import ProgressEvent

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


_LARGEST = 1024 * 1024
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _ScrubbedFormatter(logging.Formatter):
    """Takes secrets out of a line and its traceback: modules put into errors what they like."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        return visible(self._scrub(super().format(record)))


class _QuietFileHandler(RotatingFileHandler):
    """Drops what it cannot write: on a full or read-only disk the command itself says what is wrong."""

    def handleError(self, record: logging.LogRecord) -> None: ...

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is still in its buffer
            super().close()


@contextmanager
def logging_to(directory: Path, *, debug: bool, scrub: Callable[[str], str]) -> Iterator[None]:
    """Send logs without secrets to `command.log` in a directory, or to stderr, as long as a block runs."""
    handler: logging.Handler
    if debug:
        handler = logging.StreamHandler()
    else:
        handler = _QuietFileHandler(directory / "command.log", maxBytes=_LARGEST, backupCount=1, delay=True)
        handler.addFilter(lambda record: _is_there(directory))
    handler.setLevel(logging.INFO if debug else logging.WARNING)
    handler.setFormatter(_ScrubbedFormatter(scrub))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _is_there(directory: Path) -> bool:
    """Make the directory of a log when there is something to write; if that fails, the command works without a log."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return True


_MIB = 1024 * 1024
_WORDS = {"waiting": "waiting for", "asking": "asking", "fetching": "getting"}
_WORK = {"profile": "compiling profile", "packages": "installing packages for"}
_BAR = 20


class ProgressLine:
    """A line on stderr that changes, and is gone when the work is done. It is shown only on a terminal."""

    def __init__(self) -> None:
        self._is_shown = False
        self._is_wanted = sys.stderr.isatty()

    def __call__(self, event: ProgressEvent) -> None:
        word = _WORDS.get(event.phase)
        if not self._is_wanted:
            return
        if word is None:
            self.clear()
            return
        doing = _WORK.get(event.what, f"{word} {event.what}") if event.phase == "fetching" else f"{word} {event.what}"
        text = f"{_bar(event)}{doing} {event.ref}{_amount(event)}"
        self._write(shortened(text, shutil.get_terminal_size().columns - 1))

    def clear(self) -> None:
        if self._is_shown:
            self._write("")
            self._is_shown = False

    def _write(self, text: str) -> None:
        screen(sys.stderr).write(f"{ERASE_LINE}{text}")
        sys.stderr.flush()
        self._is_shown = bool(text)


def _bar(event: ProgressEvent) -> str:
    if not event.total_bytes or event.bytes is None:
        return ""
    done = min(event.bytes * _BAR // event.total_bytes, _BAR)
    return f"[{'#' * done}{'.' * (_BAR - done)}] "


def _amount(event: ProgressEvent) -> str:
    if event.bytes is None:
        return ""
    done = f"{event.bytes / _MIB:.1f}"
    return f" ({done} of {event.total_bytes / _MIB:.1f} MiB)" if event.total_bytes else f" ({done} MiB)"
