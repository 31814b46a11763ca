"""What a conversation consists of: messages, and the groups that tool calls form with their results."""

from collections.abc import Iterator, Sequence
from enum import IntEnum

from amplifier_core.utils.tool_messages import Call
from amplifier_kit.messages.stored_messages import is_pinned, metadata_of
from amplifier_kit.messages.tool_pairs import answers_of, has_content_beside_results
from amplifier_kit.types import Message

COMPACTION_SOURCE = "context-compaction"

Form = tuple[Message, int]
"""A message as a request shows it, and its tokens."""

_NOT_HUMAN = frozenset({"hook", COMPACTION_SOURCE})


class Cut(IntEnum):
    """How much of a message compaction cut; it never goes back."""

    NONE = 0
    TRUNCATE = 1
    STUB = 2
    REMOVE = 3


class Entry:
    """One message of the history, and what a request shows in its place.

    `answers` are the ids of the calls it answers, None if it is not a result; `source` is the message without results
    that belong nowhere; `full` is what is shown of it as long as nothing is decided, None until it is measured, and
    `short` has its shorter forms, each made once. If a group is removed, only its first entry says so.
    """

    __slots__ = (
        "answers",
        "cut",
        "full",
        "full_tokens",
        "is_human",
        "is_pinned",
        "is_synthetic",
        "message",
        "role",
        "short",
        "shown",
        "source",
        "tokens",
    )

    def __init__(self, message: Message, *, is_synthetic: bool = False) -> None:
        self.message = self.source = self.shown = message
        self.role = str(message.get("role") or "")
        self.answers = answers_of(message)
        metadata = metadata_of(message)
        self.is_human = self.role == "user" and _is_human(message, metadata, self.answers)
        self.is_pinned = is_pinned(metadata)
        self.is_synthetic = is_synthetic
        self.cut = Cut.NONE
        self.tokens = self.full_tokens = 0
        self.full: Message | None = None
        self.short: dict[Cut, Form] | None = None

    @property
    def is_result(self) -> bool:
        return self.answers is not None and not self.is_synthetic

    def reduce_to(self, source: Message) -> None:
        """Let `source` stand for the message; the same contents as before change nothing."""
        if source is not self.source and source != self.source:
            self.source, self.full, self.short = source, None, None


def _is_human(message: Message, metadata: Message, answers: list[str] | None) -> bool:
    """Say whether a person wrote a user message: not a hook, and not a mere tool result in the role of the user."""
    source = metadata.get("source")
    is_from_elsewhere = metadata.get("ephemeral") or (isinstance(source, str) and source in _NOT_HUMAN)
    return not is_from_elsewhere and (answers is None or has_content_beside_results(message))


class Unit:
    """What stays or goes as a whole: one message, or a tool-call message with its results.

    `start` is the place of its first message in the conversation's list. It is pinned when a vendor's state would go
    with it.
    """

    __slots__ = ("head", "index", "is_pinned", "start", "tokens")

    calls: Sequence[Call] = ()
    is_open: bool = False

    def __init__(self, head: Entry) -> None:
        self.head = head
        self.is_pinned = head.is_pinned
        self.index = self.start = self.tokens = 0

    @property
    def entries(self) -> Sequence[Entry]:
        """Its messages in order."""
        return (self.head,)


class ToolGroup(Unit):
    """A message with tool calls, and their results. It is closed when the conversation went on after it."""

    __slots__ = ("_entries", "answers", "calls", "is_closed")

    def __init__(self, head: Entry, calls: Sequence[Call]) -> None:
        super().__init__(head)
        self.calls = calls
        self.answers: list[Entry | None] = [None] * len(calls)
        self.is_closed = False
        self._entries: list[Entry] = [head]

    @property
    def entries(self) -> Sequence[Entry]:
        return self._entries

    @entries.setter
    def entries(self, entries: list[Entry]) -> None:
        self._entries = entries

    @property
    def is_open(self) -> bool:  # type: ignore[override] # never written to
        """Whether results are still on their way."""
        return not self.is_closed and None in self.answers

    def places(self) -> Iterator[tuple[Call, Entry | None]]:
        """Yield each call with its answer."""
        return zip(self.calls, self.answers, strict=True)

    def take(self, entry: Entry) -> set[str]:
        """Put a result in its places and return the ids of the calls it answers here, each of them once."""
        self.is_pinned = self.is_pinned or entry.is_pinned
        taken: set[str] = set()
        for place, call in enumerate(self.calls):
            if self.answers[place] is None and call.id in (entry.answers or ()) and call.id not in taken:
                self.answers[place] = entry
                taken.add(call.id)
        return taken
