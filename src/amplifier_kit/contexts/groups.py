"""A history in the order of a request, with every tool call followed by its results.

Messages join one by one; each costs the same however long the conversation is. What a provider would refuse is put
right in the order only, the stored messages themselves stay as they are:

- the results of a tool-call message follow it directly, in the order of the calls;
- other messages found between a call and its results move behind the group;
- results without a call are left out, and so are second results of one call;
- calls that are still unanswered when the conversation goes on get a stand-in result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from amplifier_core.utils.tool_messages import Call, calls_in
from amplifier_kit.messages.conversation import (
    answers_of,
    has_content_beside_results,
    missing_result,
    with_results_only_for,
)
from amplifier_kit.messages.stored_messages import is_pinned, metadata_of
from amplifier_kit.types import Message

# What a conversation consists of: messages, and the groups that tool calls form with their results.


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
    """True if a person wrote a user message: not a hook, and not a mere tool result in the role of the user."""
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
        """True if results are still on their way."""
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


Measure = Callable[[Message, bool], Form]
"""Returns the full form of a message, which is told apart by whether it is a tool result."""


class GroupedConversation:
    """The messages of a history as a request shows them: `messages`, their `tokens`, and the `units` they form.

    `measure` gives a message's full form. With `hides_system_messages` stored ones that no hook injected are left out.
    `revision` changes with everything else; `saved_tokens` are those that cuts took away.
    """

    def __init__(self, measure: Measure, *, hides_system_messages: bool = False) -> None:
        self.hides_system_messages = hides_system_messages
        self.units: list[Unit] = []
        self.messages: list[Message] = []
        self.tokens = 0
        self.system_messages = 0
        self.system_tokens = 0
        self.removed_messages = 0
        self.saved_tokens = 0
        self.revision = 0
        self._measure = measure
        self._waiting: dict[str, ToolGroup] = {}  # by unanswered call; of several with one id the latest counts

    @property
    def is_awaiting_results(self) -> bool:
        """True if the conversation ends with calls whose results may still come."""
        return bool(self.units) and self.units[-1].is_open

    def append(self, entry: Entry) -> None:
        """Let one more message of the history join."""
        self.revision += 1
        source = entry.message
        if entry.answers is not None:
            for call_id in entry.answers:
                group = self._waiting.get(call_id)
                # A removed group takes its late results along, but not what a person says beside them.
                if group is not None and not (group.head.cut is Cut.REMOVE and entry.is_human):
                    self._answer(group, entry)
                    return
            rest = with_results_only_for(source, ())
            if rest is None:
                return
            source = rest
        if self.hides_system_messages and entry.role == "system" and metadata_of(source).get("source") != "hook":
            return
        entry.reduce_to(source)
        self._place(entry)

    def apply(self, cuts: Mapping[Entry, Cut]) -> None:
        """Show the messages as decided from now on: removed, or in the `short` form that the cut asks for."""
        self.revision += 1
        for entry, cut in cuts.items():
            entry.cut = cut
            if cut is not Cut.REMOVE:
                self._show(entry)
        kept = []
        for unit in self.units:
            if unit.head.cut is Cut.REMOVE:
                self._forget(unit.entries)
                self.tokens -= unit.tokens
            else:
                kept.append(unit)
        self.units = kept
        self._list_from(0)

    def find_tool_name(self, call_id: str) -> str:
        """Return the name of the tool that a call asked for, empty when there is no such call."""
        calls = (call for unit in reversed(self.units) for call in unit.calls)
        return next((call.name for call in calls if call.id == call_id), "")

    def _answer(self, group: ToolGroup, entry: Entry) -> None:
        taken = group.take(entry)
        for call_id in taken:
            del self._waiting[call_id]
        if None in group.answers:  # one id may have been used for several calls
            self._waiting |= {call.id: group for call, answer in group.places() if answer is None and call.id in taken}
        entry.reduce_to(with_results_only_for(entry.message, taken) or entry.message)
        self._show(entry)
        if group.head.cut is Cut.REMOVE:
            self._forget([entry])
        else:
            self._arrange(group)
            self._list_from(group.index)

    def _place(self, entry: Entry) -> None:
        self._show(entry)
        if entry.role == "system":
            self.system_messages += 1
            self.system_tokens += entry.tokens
        previous = self._close()
        calls = calls_in(entry.source)
        unit = ToolGroup(entry, calls) if calls else Unit(entry)
        if isinstance(unit, ToolGroup):
            for call in calls:
                self._waiting[call.id] = unit
        if entry.cut is Cut.REMOVE:
            self._forget([entry])
        else:
            unit.index, unit.start = len(self.units), len(self.messages)
            self.units.append(unit)
        if previous is not None:
            self._list_from(previous.index)
        elif entry.cut is not Cut.REMOVE:
            self.messages.append(entry.shown)
            unit.tokens = entry.tokens
            self.tokens += entry.tokens

    def _close(self) -> ToolGroup | None:
        """Close the last group, since the conversation goes on; returns it when that changed its messages."""
        last = self.units[-1] if self.units else None
        if not isinstance(last, ToolGroup) or last.is_closed:
            return None
        was_open, last.is_closed = last.is_open, True
        if not was_open:
            return None
        self._arrange(last)
        return last

    def _arrange(self, group: ToolGroup) -> None:
        """Put a group's results in the order of its calls, with stand-ins where none will come."""
        answers = group.answers
        if group.is_closed and None in answers:
            known = {entry.message["tool_call_id"]: entry for entry in group.entries if entry.is_synthetic}
            answers = [answer or known.get(call.id) or self._stand_in(call) for call, answer in group.places()]
        group.entries = [group.head, *dict.fromkeys(answer for answer in answers if answer is not None)]

    def _stand_in(self, call: Call) -> Entry:
        entry = Entry(missing_result(call), is_synthetic=True)
        self._show(entry)
        return entry

    def _list_from(self, first: int) -> None:
        """List the messages of the units from `first` on once more."""
        messages, units = self.messages, self.units[first:]
        del messages[units[0].start if first and units else 0 :]
        for index, unit in enumerate(units, first):
            unit.index, unit.start = index, len(messages)
            if unit.calls:
                messages += [entry.shown for entry in unit.entries]
                tokens = sum([entry.tokens for entry in unit.entries])
            else:
                messages.append(unit.head.shown)
                tokens = unit.head.tokens
            self.tokens += tokens - unit.tokens
            unit.tokens = tokens

    def _show(self, entry: Entry) -> None:
        if entry.full is None:
            entry.full, entry.full_tokens = self._measure(entry.source, entry.is_result)
        entry.shown, entry.tokens = entry.full, entry.full_tokens
        if entry.cut is not Cut.NONE and entry.short is not None and entry.cut in entry.short:
            entry.shown, entry.tokens = entry.short[entry.cut]
            self.saved_tokens += entry.full_tokens - entry.tokens

    def _forget(self, entries: Sequence[Entry]) -> None:
        self.removed_messages += len(entries)
        self.saved_tokens += sum(entry.tokens for entry in entries)


def missing_results(history: Iterable[Message]) -> list[Message]:
    """Return stand-ins for the results that the calls at the end of a history wait for."""
    conversation = GroupedConversation(lambda message, is_result: (message, 0))
    for message in history:
        conversation.append(Entry(message))
    last = conversation.units[-1] if conversation.units else None
    if not isinstance(last, ToolGroup) or not last.is_open:
        return []
    return [missing_result(call) for call, answer in last.places() if answer is None]
