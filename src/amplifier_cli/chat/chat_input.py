"""The line at the bottom of a chat: what is typed, completed, remembered, and what the keys do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from amplifier_cli.prompt_screen import new_prompt
from amplifier_cli.render import has_colour
from amplifier_system.screen import screens, sequence, shown

from .attachments import Attachments
from .chat_terminal import ChatTerminal

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
QUEUED = "\0"
"""Begins a text that was typed with Alt-Enter while a turn ran."""


class ChatInput:
    """Reads lines while the agent works; what others print appears above.

    `is_busy` says whether a turn runs, `status` what is going on, `on_interrupt` what Ctrl-C does; it returns whether
    that was anything. `on_expand` is what Ctrl-O does. Images that are pasted are kept in `attachments`.
    """

    def __init__(
        self,
        history: Path,
        completer: Completer,
        *,
        is_busy: Callable[[], bool],
        status: Callable[[], str],
        on_interrupt: Callable[[], bool],
        on_expand: Callable[[], None],
    ) -> None:
        self._is_busy, self._status, self._on_interrupt, self._on_expand = is_busy, status, on_interrupt, on_expand
        self.question = ""
        self.attachments = Attachments()
        self._prepared = ""
        self._terminal = ChatTerminal(sys.stdin)
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        history.touch(mode=0o600)
        self._session: PromptSession[str] = new_prompt(
            message=self._message,
            history=FileHistory(str(history)),
            completer=completer,
            complete_while_typing=True,
            enable_suspend=True,
            key_bindings=self._keys(),
            input=self._terminal,
            reserve_space_for_menu=4,
        )

    def typing(self) -> AbstractContextManager[None]:
        """Keep what is typed between two lines, in this block, for the second one."""
        return self._terminal.held()

    async def read(self) -> str:
        """Return the next text that was entered.

        Raises:
            EOFError: Ctrl-D on an empty line.
        """
        text, self._prepared = self._prepared, ""
        with patch_stdout(raw=True), screens():
            return await self._session.prompt_async(default=text, handle_sigint=False)

    def redraw(self) -> None:
        app = self._session.app
        if app.is_running:
            app.invalidate()

    def leave(self) -> None:
        """End the line that is being typed as Ctrl-D does."""
        app = self._session.app
        if app.is_running:
            app.exit(exception=EOFError())

    def set_text(self, text: str) -> None:
        """Put a text into the next line, to be edited."""
        self._prepared = text

    def _message(self) -> Any:
        colour = has_colour(sys.stdout)
        dim, bold, plain = map(sequence, (_DIM, _BOLD, _PLAIN)) if colour else ("", "", "")
        if self.question:
            return ANSI(shown(f"{bold}{self.question}{plain}"))
        status = self._status()
        above = f"{dim}{status}{plain}\n" if status else ""
        return ANSI(shown(f"{above}{bold}> {plain}"))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            if not self._on_interrupt():
                event.current_buffer.reset()

        @keys.add("c-o")
        def expand(event: KeyPressEvent) -> None:
            self._on_expand()

        @keys.add("c-x", "c-e")
        async def edit(event: KeyPressEvent) -> None:
            with self._terminal.lent():
                await event.current_buffer.open_in_editor()

        @keys.add(Keys.BracketedPaste)
        def paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self.attachments.paste(text))

        @keys.add("c-v")
        async def paste_image(event: KeyPressEvent) -> None:
            mark = await asyncio.to_thread(self.attachments.paste_clipboard)
            event.current_buffer.insert_text(mark)
            event.app.invalidate()

        @keys.add("escape", "enter")
        def queue_or_break(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if self._is_busy() and not self.question and buffer.text.strip():
                buffer.append_to_history()
                text = buffer.text
                buffer.reset()
                get_app().exit(result=f"{QUEUED}{text}")
            else:
                buffer.insert_text("\n")

        return keys
