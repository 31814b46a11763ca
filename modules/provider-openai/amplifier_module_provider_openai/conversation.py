"""A conversation in the form of an API: what both APIs do with messages, and what each writes in its own way."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amplifier_kit.providers.identity_cache import IdentityCache
from amplifier_kit.providers.messages import NormalMessage, NormalResult
from amplifier_kit.types import Block

from . import message_parts

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message; `images` of a tool's result travel separately, `lost` are kinds of blocks that cannot be sent."""

    items: tuple[Item, ...] = ()
    images: tuple[Item, ...] = ()
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Conversation:
    """The instructions, what the developer adds, which is sent first, everything else in order, and what got lost."""

    instructions: str
    developer: list[Item]
    said: list[WireMessage]
    lost: frozenset[str]


class WireForm(ABC):
    """How an API writes messages."""

    @abstractmethod
    def text_part(self, text: str) -> Item: ...

    @abstractmethod
    def image_part(self, url: str) -> Item: ...

    @abstractmethod
    def user(self, parts: list[Item]) -> Item:
        """Return what a user says."""

    @abstractmethod
    def assistant(self, message: NormalMessage) -> Iterable[Item]:
        """Return what the model said and which tools it called."""

    @abstractmethod
    def results(self, results: Sequence[NormalResult], *, has_vision: bool) -> WireMessage:
        """Return the answers to tool calls."""

    def parts(self, blocks: Iterable[Block], *, has_vision: bool) -> tuple[list[Item], frozenset[str]]:
        """Return what a user is shown to have said, and the kinds of blocks that a text had to stand in for."""
        return message_parts.shown_parts(blocks, has_vision=has_vision, text=self.text_part, image=self.image_part)

    def convert(self, message: NormalMessage, *, has_vision: bool) -> WireMessage:
        """Return a message as it is sent; one of the system's is empty, because instructions are sent separately."""
        if message.role == "system":
            return WireMessage()
        if message.role == "assistant":
            return WireMessage(tuple(self.assistant(message)))
        if message.role == "developer":
            return self._text(file) if (file := message.as_context_file) else WireMessage()
        if message.results:
            return self.results(message.results, has_vision=has_vision)
        if message.role == "tool":
            return self._text(message_parts.unanswered_tool_text(message))
        parts, lost = self.parts(message.blocks, has_vision=has_vision)
        return WireMessage((self.user(parts),) if parts else (), lost=lost)

    def _text(self, text: str) -> WireMessage:
        return WireMessage((self.user([self.text_part(text)]),))


class ConversationConverter:
    """Converts messages, each once: its form is kept for as long as the message is."""

    def __init__(self, form: WireForm) -> None:
        self._form = form
        self._kept: dict[bool, IdentityCache[WireMessage]] = {True: IdentityCache(), False: IdentityCache()}

    def convert(self, messages: Sequence[NormalMessage], *, has_vision: bool) -> Conversation:
        """Return the messages, sorted by who is heard first."""
        instructions: list[str] = []
        developer: list[Item] = []
        said: list[WireMessage] = []
        convert = partial(self._form.convert, has_vision=has_vision)
        for message, wire in zip(messages, self._kept[has_vision].get_all(messages, convert), strict=True):
            if message.role == "system":
                instructions.append(message.text)
            elif message.role == "developer":
                developer += wire.items
            else:
                said.append(wire)
        lost = frozenset[str]().union(*(wire.lost for wire in said))
        return Conversation("\n\n".join(filter(None, instructions)), developer, said, lost)
