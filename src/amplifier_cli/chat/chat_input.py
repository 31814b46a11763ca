"""The line at the bottom of a chat: what is typed, completed, remembered, and what the keys do."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from amplifier_cli.failures import UsageError
from amplifier_cli.prompt_input import image_block, image_type, read_image
from amplifier_cli.session_places import AGREE
from amplifier_cli.terminal.prompt_screen import new_prompt
from amplifier_cli.terminal.render import has_colour, styled, write
from amplifier_core.local_sources import path_of_source
from amplifier_system.tasks import finished, start_task
from amplifier_system.visible import screens, sequence, shown, visible_exactly
from amplifierd.exceptions import AgreementNeededError

T = TypeVar("T")

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_REDRAWN_S = 0.02
_ESCAPE_S = 0.1
"""How long Esc waits for the rest of a key that begins with it, as Alt-Enter does."""

QUEUED = "\0"
"""Begins a text that was typed with Alt-Enter while a turn ran."""


class ChatInput:
    """Reads lines while the agent works; what others print appears above.

    `is_busy` says whether a turn runs, `status` what is going on, `on_interrupt` what Ctrl-C does; it returns whether
    that was anything. `on_stop` is what Esc does meanwhile, `on_expand` what Ctrl-O does. `standing` is what
    stands before the line, and `on_level` is what Shift-Tab does. Images that are pasted are kept in `attachments`.
    """

    def __init__(
        self,
        history: Path,
        completer: Completer,
        *,
        is_busy: Callable[[], bool],
        status: Callable[[], str],
        on_interrupt: Callable[[], bool],
        on_stop: Callable[[], object],
        on_expand: Callable[[], None],
        standing: Callable[[], str],
        on_level: Callable[[], None],
    ) -> None:
        self._is_busy, self._status, self._on_expand = is_busy, status, on_expand
        self._on_interrupt, self._on_stop = on_interrupt, on_stop
        self._standing, self._on_level = standing, on_level
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
            erase_when_done=True,  # what was entered is printed, without the status above it
        )
        self._session.app.min_redraw_interval = _REDRAWN_S
        self._session.app.ttimeoutlen = self._session.app.timeoutlen = _ESCAPE_S

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
            typed = await self._session.prompt_async(default=text, handle_sigint=False)
            question = self.question
        if typed.removeprefix(QUEUED).strip():
            write(styled(question or "> ", "bold") + typed.removeprefix(QUEUED))
        return typed

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
        """Put a text into the line, to be edited, before what stands there."""
        app = self._session.app
        if not app.is_running:
            self._prepared = "\n".join(filter(None, (text, self._prepared)))
            return
        buffer = self._session.default_buffer
        typed = "\n".join(filter(None, (text, buffer.text)))
        buffer.document = Document(typed)
        app.invalidate()

    def _message(self) -> Any:
        colour = has_colour(sys.stdout)
        dim, bold, plain = map(sequence, (_DIM, _BOLD, _PLAIN)) if colour else ("", "", "")
        if self.question:
            return ANSI(shown(f"{bold}{self.question}{plain}"))
        status = self._status()
        above = f"{dim}{status}{plain}\n" if status else ""
        standing = self._standing()
        mark = f"{dim}{standing}{plain} " if standing else ""
        return ANSI(shown(f"{above}{mark}{bold}> {plain}"))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            if not self._on_interrupt():
                event.current_buffer.reset()

        @keys.add("escape", filter=Condition(self._is_busy) & ~has_completions)
        def stop(event: KeyPressEvent) -> None:
            self._on_stop()

        keys.add("s-tab")(lambda event: self._on_level())

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


# Questions: whoever works for the session asks, and the next line that is entered is the answer.


async def agreed_in_chat(
    ask: Callable[[str], Awaitable[str]], tell: Callable[[str], None], error: AgreementNeededError
) -> bool:
    """Ask whether modules get the keys and variables that a plan from elsewhere names."""
    tell(visible_exactly(error.message))
    with suppress(EOFError):
        while (answer := (await ask(f"{AGREE} [y/N] > ")).strip().casefold()) not in ("y", "yes"):
            if answer in ("", "n", "no"):
                return False
        return True
    return False


class Questions:
    """Asks one question at a time. `show` puts it where one types, an empty text takes it away."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._answer: asyncio.Future[str] | None = None
        self._asking, self._is_asked = asyncio.Lock(), asyncio.Event()

    async def ask(self, question: str) -> str:
        """Put a question and return the answer.

        Raises:
            EOFError: the person wants to stop.
        """
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            self._is_asked.set()
            self._show(question)
            try:
                return await self._answer
            finally:
                self._answer = None
                self._is_asked.clear()
                self._show("")

    async def attend(self, work: Awaitable[T], lines: ChatInput, enter: Callable[[str], Awaitable[None]]) -> T:
        """Wait for something while nobody else reads lines: when there is a question, one is read and entered."""
        doing = start_task(work)
        try:
            while not doing.done():
                asked = start_task(self._is_asked.wait())
                await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                if not doing.done():
                    await self._read_beside(doing, lines, enter)
            return doing.result()
        finally:
            if not doing.done():
                doing.cancel()
                await finished(doing)

    async def _read_beside(
        self, doing: asyncio.Task[Any], lines: ChatInput, enter: Callable[[str], Awaitable[None]]
    ) -> None:
        """Read and enter a line, unless what asked for it ends before."""
        reading = start_task(lines.read())
        try:
            await asyncio.wait({doing, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await enter(await reading)
        except EOFError:
            self.refuse()
        finally:
            reading.cancel()
            await finished(reading)

    def take(self, text: str) -> bool:
        """Take a line as the answer, and say whether there is a question."""
        if self._answer is None:
            return False
        if not self._answer.done():
            self._answer.set_result(text.strip())
        return True

    def refuse(self) -> None:
        """Leave a question that waits without an answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError())


_CLIPBOARDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_PATIENCE_S = 3
_MOST = 20


class Attachments:
    """Each image stands in the text as `[image 1: screen.png]`; who deletes that from the line does not send it."""

    def __init__(self) -> None:
        self._images: dict[str, dict[str, Any]] = {}
        self._count = 0

    def paste(self, text: str) -> str:
        """Return what a pasted text becomes: marks, if it is nothing but the paths of images, else the text itself."""
        try:
            files = [_path(word) for word in shlex.split(text)]
            if not files or not all(file.is_file() and image_type(file) for file in files):
                return text
            return " ".join(self._kept(read_image(file), file.name) for file in files)
        except (ValueError, OSError, UsageError):  # quotes that do not match, or a name that cannot be one: words
            return text

    def paste_clipboard(self) -> str:
        """Return the mark of the image in the clipboard, empty when there is none or no program that gives it."""
        for program, *arguments in _CLIPBOARDS:
            if (found := shutil.which(program)) is None:
                continue
            try:
                run = subprocess.run([found, *arguments], capture_output=True, timeout=_PATIENCE_S, check=False)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if run.returncode == 0 and run.stdout.startswith(b"\x89PNG"):
                return self._kept(image_block(run.stdout, "image/png"), "clipboard")
        return ""

    def named_in(self, text: str) -> tuple[dict[str, Any], ...]:
        """Return the images that a text has marks of; they stay, for a prompt that is edited again in the queue."""
        return tuple(image for mark, image in self._images.items() if mark in text)

    def _kept(self, image: dict[str, Any], name: str) -> str:
        self._count += 1
        mark = f"[image {self._count}: {name}]"
        self._images[mark] = image
        if len(self._images) > _MOST:
            del self._images[next(iter(self._images))]
        return mark


def _path(word: str) -> Path:
    return path_of_source(word) or Path(word).expanduser()


# The terminal of a chat: what is typed at any time is for the next prompt, and the terminal is given back at the
# end.
#
# Left to itself, a terminal makes lines of what is typed between two prompts: it shows it, and keeps Ctrl-D.


_NOT_BY_LINES = termios.ICANON | termios.ECHO | termios.IEXTEN
_NOT_CHANGED = termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
_ENDING = (signal.SIGTERM, signal.SIGHUP)

Attributes = list[Any]


class ChatTerminal(Vt100Input):
    """The keys of a terminal."""

    _is_lent = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Make lines of what is typed, for a program that the terminal is lent to; text above the prompt needs none."""
        return super().cooked_mode() if self._is_lent else nullcontext()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the terminal to another program in this block."""
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every key that is typed in this block for the next prompt; Ctrl-C between prompts ends the chat.

        The terminal is given back after the block, when the process is stopped, and when it is asked to end.
        """
        before = termios.tcgetattr(self.fileno())

        def end(number: int, frame: FrameType | None) -> None:
            self._set(before)
            _raise_unhandled(number)

        def stop(number: int, frame: FrameType | None) -> None:
            held = termios.tcgetattr(self.fileno())
            self._set(before)
            _raise_unhandled(number)
            signal.signal(number, stop)
            self._set(held)

        handlers = {signal.SIGTSTP: stop, **dict.fromkeys(_ENDING, end)}
        ours = {number: handler for number, handler in handlers.items() if signal.getsignal(number) is signal.SIG_DFL}
        for number, handler in ours.items():
            signal.signal(number, handler)
        self._set(_by_keys(before))
        try:
            yield
        finally:
            self._set(before)
            for number in ours:
                signal.signal(number, signal.SIG_DFL)

    def _set(self, attributes: Attributes) -> None:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self.fileno(), termios.TCSANOW, attributes)


def _by_keys(attributes: Attributes) -> Attributes:
    """Return the attributes of a terminal whose keys arrive one by one, and are not shown."""
    changed = [*attributes]
    changed[tty.LFLAG] &= ~_NOT_BY_LINES
    changed[tty.IFLAG] &= ~_NOT_CHANGED
    changed[tty.CC] = [*attributes[tty.CC]]
    changed[tty.CC][termios.VMIN], changed[tty.CC][termios.VTIME] = 1, 0
    return changed


def _raise_unhandled(number: int) -> None:
    """Do to this process what a signal does that it does not handle."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
