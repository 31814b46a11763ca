"""A terminal that has joined a session of a daemon: it shows what happens there, and what is typed reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

from prompt_toolkit.application import get_app
from prompt_toolkit.completion import DummyCompleter

from amplifier_cli.approval_prompt import TerminalApprover
from amplifier_cli.attended_session import stopping_words
from amplifier_cli.config import AppConfig
from amplifier_cli.session_names import short_id, standing
from amplifier_cli.terminal.render import styled
from amplifier_cli.turn_view import TurnView
from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task
from amplifierd.client.daemon_client import DaemonClient
from amplifierd.client.remote_session import RemoteSession
from amplifierd.exceptions import NothingToSteerError, SteeringUnsupportedError
from amplifierd.paths import Paths
from amplifierd.store.record import SessionRecord

from .chat_input import QUEUED, ChatInput, Questions, agreed_in_chat
from .chat_page import ChatPage
from .conversation import ending
from .permissions import next_level

_HELP = ("Esc stops the turn", "Ctrl-C leaves it running", "Enter steers", "Alt-Enter queues")


class Attached:
    """Shows a session until the person leaves; the session stays as it is."""

    def __init__(self, client: DaemonClient, record: SessionRecord, paths: Paths, values: AppConfig) -> None:
        self._page = ChatPage(self._redraw)
        self._page.is_tainted = record.tainted
        self._questions = Questions(self._put)
        client.agree = partial(agreed_in_chat, self._questions.ask, self._page.line)
        approver = TerminalApprover(self._questions.ask, self._page.line)
        self._session = RemoteSession(client, record.model_dump(mode="json"), approver)
        self._view = TurnView(self._page, record.session_id, show_thinking=values.show_thinking)
        self._cancels = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._input = ChatInput(
            paths.state / "chat_history",
            DummyCompleter(),
            is_busy=lambda: self._is_busy,
            status=self._status,
            on_interrupt=self._leave,
            on_stop=lambda: self._tasks.add(start_task(self._told(self._stop()))),
            on_expand=lambda: None,
            standing=lambda: standing(self._session.record),
            on_level=self._choose_next_level,
        )
        self._choosing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch and type, until the person leaves or the daemon ends."""
        with self._input.typing():
            await self._run()

    async def _run(self) -> None:
        tasks = {start_task(self._watch()), start_task(self._read())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._session.close()

    @property
    def _is_busy(self) -> bool:
        return self._session.activity not in ("idle", None)

    async def _watch(self) -> None:
        own = self._session.session_id
        async for event in self._session.watch():
            self._view.show(event)
            if event.get("session_id") == own:
                self._page.follow(event)
            if event["event"] == "stream:connected":
                doing = "works" if self._is_busy else "is idle: what you type is its next prompt"
                self._page.line(styled(f"session {short_id(own)} {doing}", "dim"))
            if self._view.is_end(event):
                self._cancels = 0
                self._view.end()
                for line in ending(event["data"], self._session.record):
                    self._page.line(line)
            self._redraw()

    async def _read(self) -> None:
        while True:
            try:
                text = await self._input.read()
            except EOFError:
                return
            if text.strip() == "/quit":
                return
            await self._questions.attend(self._told(self._enter(text)), self._input, self._enter)

    async def _enter(self, text: str) -> None:
        if self._questions.take(text) or not text.strip():
            return
        if text.strip() == "/cancel":
            await self._stop()
        elif text.startswith(QUEUED) or not self._is_busy:
            await self._session.submit(text.removeprefix(QUEUED).strip(), queue=True)
        else:
            await self._steer(text.strip())

    async def _stop(self) -> None:
        self._cancels += 1
        stopping = await self._session.cancel(immediate=self._cancels > 1)
        self._page.line(styled(stopping_words(stopping, again="Esc again"), "yellow"))

    async def _steer(self, text: str) -> None:
        try:
            await self._session.steer(text)
            self._page.line(styled(f"told the agent: {text}", "dim"))
        except (NothingToSteerError, SteeringUnsupportedError):
            await self._session.submit(text, queue=True)

    async def _told(self, work: Awaitable[Any]) -> None:
        """Do something, and tell the person what is wrong with it."""
        try:
            await work
        except AmplifierError as error:
            self._page.line(styled(f"error: {error.message}", "red"))
            if error.hint:
                self._page.line(f"  fix: {error.hint}")

    def _choose_next_level(self) -> None:
        if self._choosing is None or self._choosing.done():
            level = next_level(self._session.record.permission_level)
            self._choosing = start_task(self._told(self._session.choose_level(level)))

    def _leave(self) -> bool:
        get_app().exit(exception=EOFError())
        return True

    def _put(self, question: str) -> None:
        self._input.question = question
        self._redraw()

    def _status(self) -> str:
        return self._page.status_lines(_HELP if self._is_busy else None)

    def _redraw(self) -> None:
        self._input.redraw()
