"""A chat: what is typed reaches the session, what happens there is drawn."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from amplifier_cli.approval_prompt import TerminalApprover, yes_to_all
from amplifier_cli.attended_session import AttendedSession, stopping_words
from amplifier_cli.config import ResolvedConfig
from amplifier_cli.failures import error_lines
from amplifier_cli.resumption import Opening, begun
from amplifier_cli.session_names import agent_of, missing_modules, short_id, standing, without
from amplifier_cli.session_places import SessionPlace, lost_with
from amplifier_cli.terminal.render import ago, counted, message_text, notify, styled
from amplifier_cli.turn_view import Details, Event, TurnView, summary
from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.io import parse_frontmatter
from amplifier_system.permission_levels import PermissionLevel
from amplifier_system.tasks import start_task
from amplifierd.exceptions import (
    NothingToSteerError,
    PromptRemovedError,
    SteeringUnsupportedError,
)
from amplifierd.home import Home
from amplifierd.store.record import SessionRecord

from .chat_input import QUEUED, ChatInput, Questions, agreed_in_chat
from .chat_page import ChatPage
from .permissions import PlanReview, next_level
from .slash_commands import COMMANDS, run_command

_PATIENCE_S = 15.0
_TICK_S = 0.1
_COMING_BACK_S = 60.0
"""How long a daemon that is restarted is waited for."""

_ABOUT_QUEUE = frozenset({"execution:queued", "user_message:saved", "execution:done"})


class Chat:
    """One conversation at the terminal; it can move from session to session."""

    session: AttendedSession

    def __init__(self, home: Home, config: ResolvedConfig, place: SessionPlace, *, yes: bool = False) -> None:
        self.home, self.config, self.place = home, config, place
        self.is_over = self._has_begun = False
        self.page = ChatPage(self._redraw)
        self.approver = yes_to_all() if yes else TerminalApprover(self.ask, self.page.line)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Future[Any] | None = None
        self._questions = Questions(self._put)
        self.is_recalled_whole = False
        self._hits = 0
        self._typed: list[str] = []  # steering and queued prompts that the agent has not got yet, in their order
        self._unheard: list[str] = []
        self._waiting = 0
        self._queue_changed = asyncio.Event()
        self._lost: AmplifierError | None = None
        place.agree = partial(agreed_in_chat, self.ask, self.page.line)
        if place.client is not None:
            place.client.patience_s, place.client.tell = _COMING_BACK_S, self._tell_of_daemon
        self.details = Details()
        self.dropped: set[str] = set()
        self._input = ChatInput(
            home.paths.state / "chat_history",
            ChatCompleter(Path.cwd(), self.command_helps, self.agents),
            is_busy=lambda: self.is_busy,
            status=self._status,
            on_interrupt=self._interrupt,
            on_stop=self._interrupt,
            on_expand=lambda: self.expand(self.details.last),
            standing=lambda: standing(self.session.record),
            on_level=lambda: self.in_background(self.choose_level(next_level(self.session.record.permission_level))),
        )
        self._plan = PlanReview()

    async def run(self, opening: Opening) -> None:
        """Talk until the person ends it.

        Raises:
            DaemonLostError: the daemon that the session runs in has ended, and none came after it.
        """
        with self._input.typing():
            await self._attend(self.switch(opening))
            self.page.line(
                styled(f"{agent_of(self.session.record)}; /help lists the commands, Ctrl-D ends the chat", "dim")
            )
            await self._recall()
            ticking = start_task(self._tick())
            try:
                await self._read()
            finally:
                ticking.cancel()
                await self._close()
        if self._lost is not None:
            raise self._lost

    async def _read(self) -> None:
        while not self.is_over:
            try:
                text = await self._input.read()
            except EOFError:
                return
            await self._enter(text)

    async def switch(self, opening: Opening) -> None:
        """Go on in another session.

        Raises:
            SessionStartError: a module that it cannot do without is broken.
        """
        session = await begun(self.home, opening, self.page.line)
        await self._close()
        self.session, self._has_begun = session, True
        self.page.is_tainted = session.record.tainted
        events = await session.subscribe()
        self._watching = asyncio.gather(self._watch(session, events), self._count_queued(session))
        if not self.is_busy and (left := await session.queued()):
            self.page.line(f"note: {counted(len(left), 'prompt')} still in the queue; /queue edit 1 takes one out")

    # --- what is typed

    @property
    def is_busy(self) -> bool:
        return self._has_begun and self.session.activity not in ("idle", None)

    async def _attend(self, work: Awaitable[None]) -> None:
        """Wait for something before the next line is read; what it asks is answered meanwhile."""
        await self._questions.attend(work, self._input, self._enter)

    async def _enter(self, text: str) -> None:
        if self._questions.take(text):
            return
        if not self.is_busy and (accepted := await self._plan.take(self, text)) is not None:
            text = accepted
        if text.startswith(QUEUED):
            self.submit(text.removeprefix(QUEUED).strip())
        elif text.strip().startswith("/"):
            await self._command(text.strip())
        elif text.strip() and self.is_busy:
            await self._steer(text.strip())
        elif text.strip():
            self.submit(text.strip())

    def submit(self, prompt: str) -> None:
        """Give the agent a prompt; while a turn runs, it waits."""
        if self.is_busy:
            self._typed.append(prompt)
            self.page.line(styled(f"queued: {prompt}", "dim"))
        else:
            self.page.meter.begin()  # a sign of life before the session has one
        self.in_background(self._turn(prompt, self._input.attachments.named_in(prompt)))

    def in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something while the person can type; what goes wrong is told."""

        async def contained() -> None:
            try:
                await work
            except AmplifierError as error:
                self.tell(error)

        self._keep(start_task(contained()))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _recall(self) -> None:
        """Show the last exchange of a session that goes on, or with `is_recalled_whole` all of them."""
        record = self.session.record
        if not record.turn_count:
            return
        called = record.name or record.first_prompt or self.short_id
        used = f"{counted(record.turn_count, 'turn')} · {ago(record.last_activity_at)}"
        self.page.line(styled(f"{called} · {used}\n", "dim"))
        messages = await self.session.messages()
        last = max((message.get("turn") or 0 for message in messages), default=0)
        for message in messages:
            text = message_text(message.get("content")).strip()
            if not text or (not self.is_recalled_whole and message.get("turn") != last):
                continue
            if message.get("role") == "user":
                self.page.line(f"{styled('> ', 'bold')}{text}")
            elif message.get("role") == "assistant":
                self.page.answer(text)
                if (message.get("metadata") or {}).get("partial"):
                    self.page.line(styled("  it was stopped here", "yellow"))

    async def _tick(self) -> None:
        """Show that time passes while the agent works."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self.page.meter.is_running:
                self._redraw()

    async def _turn(self, prompt: str, images: tuple[dict[str, Any], ...]) -> None:
        status = None
        try:
            status = (await self.session.execute(prompt, images=images, queue=True)).status
        except PromptRemovedError:
            if prompt not in self.dropped:
                raise
            return
        except AmplifierError:
            self._give_back()
            raise
        finally:
            self.dropped.discard(prompt)
            if prompt in self._typed:
                self._typed.remove(prompt)
            if not self.is_busy:
                self.page.meter.end()
            self._redraw()
        if status != "completed":
            self._give_back()
        if self._unheard:
            await self.session.read()  # a daemon that ended with the turn is waited for
        if self._unheard and not self.is_busy:
            late, self._unheard = "\n\n".join(self._unheard), []
            self.submit(late)

    def _give_back(self, withdrawn: Iterable[str] = ()) -> None:
        """Put prompts that were queued, and what the agent has not read, back into the input line."""
        unread, self._unheard = {*self._unheard, *withdrawn}, []
        texts = [text for text in self._typed if text in unread]
        self._typed = [text for text in self._typed if text not in unread]
        if texts:
            self._input.set_text("\n".join(texts))

    async def _steer(self, text: str) -> None:
        try:
            await self.session.steer(text)
            self._unheard.append(text)  # said again as a prompt if the turn ends without hearing it
            self._typed.append(text)
            self.page.line(styled(f"told the agent: {text}", "dim"))
        except (NothingToSteerError, SteeringUnsupportedError):
            self.submit(text)

    async def _command(self, text: str) -> None:
        name, _, arguments = text[1:].partition(" ")
        own = self.own_commands().get(name)
        if own is not None and name not in COMMANDS:
            self.submit(own.prompt(arguments.strip()))
            return
        try:
            await self._attend(run_command(self, name, arguments.strip()))
        except AmplifierError as error:
            self.tell(error)

    async def choose_level(self, level: PermissionLevel) -> None:
        """Let the agent do more or less without asking, from its next call of a tool on."""
        await self.session.choose_level(level)
        self._redraw()

    async def ask(self, question: str) -> str:
        """Put a question to the person; the next line that is entered is the answer."""
        return await self._questions.ask(question)

    def _put(self, question: str) -> None:
        self._input.question = question
        if question:
            self._notify("the agent is waiting for an answer")
        self._redraw()

    def _interrupt(self) -> bool:
        """Do what Ctrl-C does, and say whether that was anything."""
        self._questions.refuse()
        if not self.is_busy:
            self.page.line(styled("Ctrl-D or /quit ends the chat", "dim"))
            return False
        self._hits += 1
        self.in_background(self._stop(immediate=self._hits > 1))
        return True

    async def _stop(self, *, immediate: bool) -> None:
        """Stop the turn, and what would follow it; what was typed for the agent is given back."""
        typed = [*self._typed]
        self.dropped.update(typed)
        stopping = await self.session.cancel(immediate=immediate, withdraw=True)
        self.page.line(styled(stopping_words(stopping), "yellow"))
        withdrawn = stopping.get("withdrawn") or ()
        self._typed += [text for text in withdrawn if text not in self._typed]
        self._typed.sort(key=lambda text: typed.index(text) if text in typed else len(typed))
        self._give_back(withdrawn)

    # --- what happens

    async def _watch(self, session: AttendedSession, events: AsyncIterator[Event]) -> None:
        """Draw what happens; where a daemon is lost for good, the chat ends."""
        view = TurnView(
            self.page, session.session_id, show_thinking=self.config.values.show_thinking, details=self.details
        )
        try:
            with lost_with(session.session_id):
                async for event in events:
                    view.show(event)
                    if event["session_id"] == session.session_id:
                        self.page.follow(event)
                        self._follow(event, view)
        except AmplifierError as error:
            self._lost, self.is_over = error, True
            self._input.leave()

    def _follow(self, event: Event, view: TurnView) -> None:
        match event["event"]:
            case "orchestrator:steering_injected":
                self._hear(str(event["data"].get("content")))
            case "execution:done" if view.is_end(event):
                view.end()
                self._conclude(event)
        if event["event"] in _ABOUT_QUEUE:
            self._queue_changed.set()

    def _hear(self, text: str) -> None:
        """Take note of what the agent has read."""
        for kept in (self._unheard, self._typed):
            if text in kept:
                kept.remove(text)

    async def _count_queued(self, session: AttendedSession) -> None:
        """Ask how many prompts wait, beside what is drawn: a daemon that ends may leave that without an answer."""
        while True:
            await self._queue_changed.wait()
            self._queue_changed.clear()
            with suppress(AmplifierError):  # a chat does not end because a number is missing
                self._waiting = len(await session.queued())
            self._redraw()

    def _tell_of_daemon(self, text: str) -> None:
        self.page.line(styled(text, "yellow"))

    def _conclude(self, event: Event) -> None:
        self._hits = 0
        done = event["data"]
        if self.session.record.permission_level == "plan" and done.get("status") == "completed":
            self._plan.offer(self.page)
        for line in ending(done, self.session.record):
            self.page.line(line)
        usage = done.get("usage") or {}
        if (usage.get("seconds") or 0) >= self.config.values.bell_after > 0:
            self._notify(f"the turn has ended: {done.get('status')}")

    def tell(self, error: AmplifierError) -> None:
        self.page.line(styled(f"error: {error.message}", "red"))
        if error.hint:
            self.page.line(f"  fix: {error.hint}")

    def _status(self) -> str:
        if not (self.is_busy or self.page.meter.is_running):
            return self.page.status_lines(None)
        queue = f"{self._waiting} queued" if self._waiting else ""
        return self.page.status_lines([queue, "Esc stops", "Enter steers", "Alt-Enter queues"])

    # --- what is there

    def command_helps(self) -> dict[str, str]:
        """Return every command with its help, those that people wrote included."""
        own = {name: command.description for name, command in self.own_commands().items()}
        return {**own, **{name: command.help for name, command in COMMANDS.items()}}

    def own_commands(self) -> dict[str, OwnCommand]:
        folders = [self.home.paths.config / "commands"]
        if self.config.is_trusted:
            folders.append(self.config.files.commands)
        return own_commands(folders)

    def agents(self) -> list[str]:
        agents = self.home.sessions.plan(self.session.session_id).get("agents") or {}
        return sorted(str(name) for name in agents)

    @property
    def short_id(self) -> str:
        return short_id(self.session.session_id)

    def _redraw(self) -> None:
        self._input.redraw()

    def edit(self, text: str) -> None:
        """Put a text into the input line."""
        self._input.set_text(text)

    def expand(self, number: int) -> None:
        """Show a line in full, by its number."""
        detail = self.details.find(number)
        self.page.line(str(detail) if detail is not None else styled("nothing with that number is kept", "dim"))

    def _notify(self, text: str) -> None:
        notify(text, self.config.values.notify, sys.stdout)

    async def _close(self) -> None:
        if self._watching is None:
            return
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE_S)
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self._watching = None
        await self.session.close()


_MENTION = re.compile(r"(?:^|\s)@([^\s@]*)$")
_MOST = 40
_HIDDEN = (".", "__pycache__", "node_modules")


class ChatCompleter(Completer):
    """`commands` are the slash commands with their help, `agents` the names of agents."""

    def __init__(
        self, working_dir: Path, commands: Callable[[], Mapping[str, str]], agents: Callable[[], Iterable[str]]
    ) -> None:
        self._working_dir, self._commands, self._agents = working_dir, commands, agents

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before:
            for name, help in self._commands().items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", start_position=-len(before), display_meta=help)
        elif found := _MENTION.search(before):
            typed = found[1]
            yield from islice(self._mentions(typed), _MOST)

    def _mentions(self, typed: str) -> Iterable[Completion]:
        for agent in self._agents():
            if agent.startswith(typed):
                yield Completion(agent, start_position=-len(typed), display_meta="agent")
        folder, _, beginning = typed.rpartition("/")
        directory = self._working_dir / folder
        try:
            inside = sorted(directory.iterdir())
        except OSError:
            return
        for path in inside:
            if path.name.startswith(beginning) and (beginning or not path.name.startswith(_HIDDEN)):
                text = f"{folder}/{path.name}" if folder else path.name
                yield Completion(f"{text}/" if path.is_dir() else text, start_position=-len(typed))


# Commands that people write themselves: `.amplifier/commands/<name>.md`, with `$ARGUMENTS` for what follows.


_ARGUMENTS = "$ARGUMENTS"


@dataclass(frozen=True)
class OwnCommand:
    """A prompt with a name."""

    name: str
    description: str
    text: str

    def prompt(self, arguments: str) -> str:
        if _ARGUMENTS in self.text:
            return self.text.replace(_ARGUMENTS, arguments)
        return f"{self.text}\n\n{arguments}".strip()


def own_commands(folders: Iterable[Path]) -> dict[str, OwnCommand]:
    """Return the commands in some folders by their names; of two with one name, that of the later folder."""
    files = [file for folder in folders for file in sorted(folder.glob("*.md"))]
    return {file.stem: _read(file) for file in files}


def _read(file: Path) -> OwnCommand:
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        front, body = parse_frontmatter(text)
    except (ValueError, yaml.YAMLError):
        front, body = {}, text
    description = str((front or {}).get("description") or body.strip().partition("\n")[0])
    return OwnCommand(file.stem, description, body.strip())


def ending(done: Mapping[str, Any], record: SessionRecord) -> Iterator[str]:
    """Yield what is to be said when a turn is over: its error, what it used, and what the session goes without."""
    if error := done.get("error"):
        found, *fix = error_lines(error)
        yield "\n".join([styled(found, "red"), *fix])
    how = "" if done.get("status") == "completed" else f"{done.get('status')} · "
    parts = [f"{how}{summary(done.get('usage') or {})}", without(missing_modules(record))]
    yield styled(f"{' · '.join(filter(None, parts))}\n", "dim")
