"""The transcript of a session: every message as it becomes available, one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from amplifier_core.boundary import settle
from amplifier_core.utils import json_safe
from amplifier_kit.messages.conversation import text_of
from amplifier_system.surroundings import new_token
from amplifierd.exceptions import InvalidMessageError, SessionError
from amplifierd.sessions.layers.calls import StandIn
from amplifierd.store.protocol import Hold, Message, SessionStore
from amplifierd.store.record import now

from .message_digest import TranscriptIndex

DELETED = "message:deleted"
_ROLES = frozenset({"user", "assistant", "tool", "system"})
_ADDED_ROLES = ("user", "assistant", "system")
_REQUESTED_ROLE = "requested_role"
_LINE_ONLY = frozenset({"id", "timestamp", "turn", "correlation_id", "agent", "token_count"})


class Transcript:
    """Appends the messages of one session. `turn` and `correlation_id` are those of the turn that runs.

    `count` is how many messages are stored, `answers` how many of the assistant were written; `is_behind` says that one
    could not be, which the context may have all the same.

    The prompt of a turn is written before the orchestrator sees it. When the orchestrator stores it in the context, it
    is recognised, also as hooks changed it or with words around it, and not written again; `on_reworded` is told the id
    of its line and what the context has. What is added is told to `hear`, and to `forget` if it could not be written.
    """

    def __init__(
        self,
        store: SessionStore,
        hold: Hold,
        *,
        agent: str | None = None,
        hear: Callable[[Mapping[str, Any]], None] = lambda message: None,
        forget: Callable[[Mapping[str, Any]], None] = lambda message: None,
    ) -> None:
        self._heard, self._forget = hear, forget
        self.turn = 0
        self.correlation_id: str | None = None
        self.last_id: str | None = None
        self.answers = 0
        self.is_behind = False
        self.count = 0
        self._store, self._hold, self._agent = store, hold, agent
        self._prompts: tuple[str, ...] = ()
        self._prompt_id = ""
        self.on_reworded: Callable[[str, Any], Awaitable[None]] = _ignore
        self.index = TranscriptIndex()

    def install(self, messages: list[Message]) -> None:
        """Take note of what is stored already."""
        self.is_behind = False
        self.index.clear()
        for message in messages:
            self.index.add(message)
        self.last_id = str(messages[-1]["id"]) if messages else None
        self.count = len(messages)

    async def add_prompt(self, prompt: str, metadata: Mapping[str, Any] | None = None) -> Message:
        """Write the prompt that begins a turn."""
        self._prompts = (prompt,)
        extra = {"metadata": dict(metadata)} if metadata else {}
        line = await self.add({"role": "user", "content": prompt, **extra}, lasting=True)
        self._prompt_id = line["id"]
        return line

    def expect(self, prompt: str) -> None:
        """Take note of what hooks made of the prompt."""
        if self._prompts:
            self._prompts = (*self._prompts, prompt)

    async def hear(self, message: Mapping[str, Any]) -> None:
        """Write a message that was added to the context."""
        if self._is_prompt(message):
            written, self._prompts = self._prompts[0], ()
            if text_of(message.get("content")) != written:
                await self.on_reworded(self._prompt_id, json_safe(message.get("content")))
            return
        if message.get("role") == "assistant":
            self._prompts = ()  # an answer follows its prompt
        self._heard(message)
        try:
            await self.add(message)
        except SessionError:
            self._forget(message)
            raise

    async def add(self, message: Mapping[str, Any], *, lasting: bool = False) -> Message:
        """Write a message."""
        line = self.line(message)
        try:
            await self._store.append_messages(self._hold, [line], lasting=lasting)
        except SessionError:
            self.is_behind = True
            raise
        except asyncio.CancelledError:  # a store ends what it has begun
            self._note(line)
            raise
        self._note(line)
        return line

    def _note(self, line: Message) -> None:
        self.index.add(line)
        self.last_id = line["id"]
        self.answers += line["role"] == "assistant"
        self.count += 1

    def _is_prompt(self, message: Mapping[str, Any]) -> bool:
        if not self._prompts or message.get("role") != "user" or _is_injected(message):
            return False
        said = text_of(message.get("content"))
        return any(prompt in said if prompt else not said for prompt in self._prompts)

    def line(self, message: Mapping[str, Any]) -> Message:
        """Return a message as it is stored."""
        return message_line(message, self.turn, correlation_id=self.correlation_id, agent=self._agent)


def message_line(
    message: Mapping[str, Any], turn: int, *, correlation_id: str | None = None, agent: str | None = None
) -> Message:
    """Return a message as it is stored."""
    plain = json_safe(dict(message))
    role = plain.pop("role", "user")
    head = {
        "id": f"msg_{new_token()}",
        "timestamp": now(),
        "role": role,
        "content": plain.pop("content", None),
    }
    if role not in _ROLES or (role == "user" and _is_injected(message)):
        head["role"] = "system"
        plain["metadata"] = {**(plain.get("metadata") or {}), _REQUESTED_ROLE: role}
    tail: dict[str, Any] = {"turn": turn}
    if correlation_id:
        tail["correlation_id"] = correlation_id
    if named := plain.get("agent") or agent:
        tail["agent"] = named
    if isinstance(count := plain.get("token_count"), int):
        tail["token_count"] = count
    rest = {key: value for key, value in plain.items() if key not in _LINE_ONLY}
    return {**head, **tail, **rest}


async def _ignore(message_id: str, content: Any) -> None:
    """Keep no other wording of a prompt."""


class RecordedContext(StandIn):
    """A context manager whose new messages are written to the transcript as well."""

    __slots__ = ("_transcript",)

    def __init__(self, context: Any, transcript: Transcript) -> None:
        super().__init__(context)
        object.__setattr__(self, "_transcript", transcript)

    async def add_message(self, message: dict[str, Any]) -> None:
        transcript: Transcript | None = self._transcript
        await settle(self._real.add_message(message))
        if transcript is not None:
            await transcript.hear(message)

    def cut_off(self) -> None:
        """Let what is added from now on stay out of the transcript."""
        object.__setattr__(self, "_transcript", None)


def for_context(line: Mapping[str, Any]) -> Message:
    """Return a stored message as the context had it."""
    message = {key: value for key, value in line.items() if key not in _LINE_ONLY}
    metadata = message.get("metadata")
    if isinstance(metadata, dict) and isinstance(requested := metadata.get(_REQUESTED_ROLE), str):
        message["role"] = requested
    return message


def new_message(role: str, content: Any, *, agent: str | None = None, token_count: int | None = None) -> dict[str, Any]:
    """Return a message that someone adds to a conversation beside its turns.

    Raises:
        InvalidMessageError: its role or its content cannot be used.
    """
    if role not in _ADDED_ROLES:
        raise InvalidMessageError(
            f"a message cannot be added as {role!r}",
            hint=f"roles are {', '.join(_ADDED_ROLES)}; the result of a tool belongs to its call",
        )
    is_blocks = isinstance(content, list) and all(
        isinstance(b, Mapping) and isinstance(b.get("type"), str) for b in content
    )
    if not content or not (isinstance(content, str) or is_blocks):
        raise InvalidMessageError("the content of a message is a text or a list of content blocks, and not empty")
    extra = {"agent": agent, "token_count": token_count}
    return {"role": role, "content": content, **{name: value for name, value in extra.items() if value is not None}}


def deletions(messages: Sequence[Message]) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that say that messages are no longer part of a conversation, the last one first."""
    fields = ("role", "content", "turn")
    return [
        (DELETED, {"message_id": line.get("id"), **{name: line.get(name) for name in fields}})
        for line in reversed(messages)
    ]


def last_turn(messages: list[Message]) -> int:
    """Return the number of the last turn of a transcript."""
    return max((turn for message in messages if isinstance(turn := message.get("turn"), int)), default=0)


def _is_injected(message: Mapping[str, Any]) -> bool:
    metadata = message.get("metadata")
    return isinstance(metadata, dict) and metadata.get("source") == "hook"
