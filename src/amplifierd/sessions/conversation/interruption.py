"""What a crash left of a session's last turn, and how the transcript is made whole again."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from amplifier_core import TextBlock, ThinkingBlock
from amplifier_core.llm_errors import AbortError
from amplifier_core.utils.tool_messages import Call, calls_in, results_in
from amplifier_kit.messages.conversation import text_of
from amplifier_sessions.event_page import EventPlace, ReadPage, event_batches, number_of
from amplifier_system.tasks import start_task
from amplifierd.exceptions import SessionError
from amplifierd.problems import problem_document
from amplifierd.sessions.events.journal import PIECES
from amplifierd.sessions.layers.receipts import INTENT, OUTCOME, CallState, Check, ReadPart, ReceiptBook
from amplifierd.sessions.layers.request_parts import REQUEST_STORED, RESPONSE_STORED
from amplifierd.sessions.layers.uncounted_usage import TURN_BEGUN, TURN_DONE, used_in
from amplifierd.store.protocol import Message, StoredEvent

from .transcript import Transcript, last_turn

Settle = Callable[[Call, int], Awaitable[tuple[CallState, Any]]]

PARTIAL = "assistant_message:partial"
INTERRUPTED = "The turn was interrupted before it ended."
REPAIRED = "session:repaired"

_OF_CALLS = (INTENT, OUTCOME, REQUEST_STORED, RESPONSE_STORED)
_LOOKED_AT = frozenset({TURN_BEGUN, TURN_DONE, PARTIAL, REPAIRED, *_OF_CALLS})


@dataclass(frozen=True)
class RepairedCall:
    """A tool call that had no result, and how it was answered."""

    tool_call_id: str
    tool_name: str
    state: CallState


@dataclass(frozen=True)
class RepairReport:
    """What was repaired in a session; empty when nothing had to be."""

    session_id: str
    calls: tuple[RepairedCall, ...] = ()
    partial_answer: bool = False
    closed_turn: int | None = None

    def __bool__(self) -> bool:
        return bool(self.calls or self.partial_answer or self.closed_turn is not None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, session_id: str, lines: Iterable[Message]) -> RepairReport:
        """Return what these lines, which a repair wrote, are about."""
        marked = [(line, line.get("metadata") or {}) for line in lines]
        calls = tuple(
            RepairedCall(str(line.get("tool_call_id")), str(line.get("name")), metadata["repaired"])
            for line, metadata in marked
            if "repaired" in metadata
        )
        ends = [(line, metadata) for line, metadata in marked if "interrupted" in metadata]
        is_partial = any("partial" in metadata for _, metadata in ends)
        return cls(session_id, calls, is_partial, ends[-1][0].get("turn") if ends else None)


@dataclass(frozen=True)
class BrokenTurn:
    """A turn that was begun and never ended, with its events; `is_told` if its end was told without a repair.

    `turn_id` is the one under which its end is stored, whoever writes that.
    """

    number: int
    correlation_id: str | None
    events: tuple[StoredEvent, ...]
    is_told: bool = False
    turn_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def done(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return how it ended after all; `interrupted` if its messages have not been made whole yet."""
        last = messages[-1]
        facts = {"turn": self.number, "usage": used_in(self.events).to_json(), "finish_reason": None}
        is_repaired = "interrupted" in (last.get("metadata") or {})
        if _is_answer(last) and not is_repaired:
            return {"status": "completed", **facts, "response": text_of(last.get("content"))}
        error = problem_document(AbortError("the process that ran the turn ended before the turn did"))
        failed = {"status": "failed", **facts, "response": None, "error": error}
        return failed if is_repaired else {**failed, "interrupted": True}


@dataclass
class Remains:
    """What a repair looks at: the events since the last turn that ended and is counted, and the receipts of them all.

    Of events that it does not look at, and of what tools returned, nothing is kept in memory.
    """

    events: list[StoredEvent] = field(default_factory=list)
    receipts: ReceiptBook = field(default_factory=ReceiptBook)

    @classmethod
    async def read(cls, read_page: ReadPage, session_id: str, counted: int) -> Remains:
        """Read the remains of a session; `counted` is the number of the last event that its record counts."""
        remains = cls()
        place = EventPlace(1, wants=_LOOKED_AT.__contains__)
        async with aclosing(event_batches(read_page, session_id, place)) as batches:
            async for batch in batches:
                for event in batch:
                    remains._take(event, counted)
        return remains

    def _take(self, event: StoredEvent, counted: int) -> None:
        self.receipts.take(event)
        name, data = event["event"], event.get("data")
        is_ended = name == TURN_DONE and isinstance(data, Mapping) and not data.get("interrupted")
        if is_ended and number_of(event) <= counted:
            self.events.clear()
        self.events.append({**event, "data": {}} if name == OUTCOME else event)


@dataclass(frozen=True)
class Repair:
    """A transcript made whole: `added` goes to its end; when it has to be rewritten, `rewritten` is all of it."""

    report: RepairReport
    turn: BrokenTurn | None = None
    added: tuple[Message, ...] = ()
    rewritten: tuple[Message, ...] | None = None


async def repair(
    session_id: str,
    messages: Sequence[Message],
    remains: Remains,
    transcript: Transcript,
    check: Check | None = None,
    read_part: ReadPart | None = None,
    *,
    turn_count: int = 0,
) -> Repair:
    """Answer every tool call that has no result, keep what was said of an answer, and close the broken turn.

    `turn_count` is the number of turns that the record knows of. A repair that was itself interrupted is reported with
    what it had written.
    """
    broken = find_broken_turn(messages, remains.events, turn_count)
    settle = partial(remains.receipts.settle, check=check, read_part=read_part)
    orphans = _orphans(messages)
    whole: list[Message] = []
    written = [line for line in messages if broken and line.get("turn") == broken.number and _is_of_repair(line)]
    at_end: list[Message] = []
    is_rewritten = False
    for index, message in enumerate(messages):
        whole.append(message)
        stand_ins = [await _stand_in(call, message, settle, transcript) for call in orphans.get(index, ())]
        if not stand_ins:
            continue
        written += stand_ins
        if all(results_in(later) for later in messages[index + 1 :]):
            at_end += stand_ins
        else:
            whole += stand_ins
            is_rewritten = True
    if broken is not None or at_end:
        at_end += _closing([*whole, *at_end], broken, transcript)
        written += [line for line in at_end if line not in written]
    report = RepairReport.of(session_id, written)
    if is_rewritten:
        return Repair(report, broken, rewritten=(*whole, *at_end))
    return Repair(report, broken, added=tuple(at_end))


def find_broken_turn(
    messages: Sequence[Message], events: Sequence[StoredEvent], turn_count: int = 0
) -> BrokenTurn | None:
    """Return the turn that was begun and never ended, or whose end was told and that is still to be repaired."""
    number, begun = last_turn([*messages]), 0
    is_told = is_repaired = False
    for index in range(len(events) - 1, -1, -1):
        name, data = events[index].get("event"), events[index].get("data")
        is_repaired = is_repaired or name == REPAIRED
        if name in (TURN_BEGUN, TURN_DONE) and isinstance(data, Mapping):
            if name == TURN_DONE and data.get("interrupted") and not is_repaired:
                is_told = True
                continue
            begun = turn if isinstance(turn := data.get("turn"), int) else number
            if name == TURN_BEGUN and messages:
                mark, known = events[index], {}
                if turn_id := mark.get("turn_id"):  # older versions gave none
                    known["turn_id"] = str(turn_id)
                return BrokenTurn(begun, mark.get("correlation_id"), tuple(events[index:]), is_told, **known)
            break
    if number > max(begun, turn_count):  # the prompt was stored, and that was all
        return BrokenTurn(number, messages[-1].get("correlation_id"), (), is_told)
    return None


def ends_repaired(messages: Sequence[Message]) -> bool:
    """True if the last turn of a transcript is one that was repaired."""
    turn = last_turn([*messages])
    return any(_is_of_repair(line) for line in messages if line.get("turn") == turn)


def _orphans(messages: Sequence[Message]) -> dict[int, list[Call]]:
    """Return the calls without a result, by the message that asks for them; an id may have been used before."""
    waiting: dict[str, tuple[int, Call]] = {}
    orphans: list[tuple[int, Call]] = []
    for index, message in enumerate(messages):
        for result in results_in(message) or ():
            waiting.pop(result.call_id, None)
        for call in calls_in(message) if message.get("role") == "assistant" else ():
            if call.id in waiting:
                orphans.append(waiting.pop(call.id))
            waiting[call.id] = (index, call)
    found: dict[int, list[Call]] = {}
    for index, call in (*orphans, *waiting.values()):
        found.setdefault(index, []).append(call)
    return found


async def _stand_in(call: Call, message: Message, settle: Settle, transcript: Transcript) -> Message:
    turn = message.get("turn", transcript.turn)
    state, content = await settle(call, turn)
    metadata = {"repaired": state}
    answer = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content, "metadata": metadata}
    return {**transcript.line(answer), "turn": turn, **_correlation(message)}


def _closing(whole: Sequence[Message], broken: BrokenTurn | None, transcript: Transcript) -> list[Message]:
    """Return the message that ends a turn which a crash ended: what was said of an answer, or that it broke off."""
    last = whole[-1]
    said = _partial_text(whole, broken.events) if broken else ""
    if not said and _is_answer(last):
        return []
    metadata = {"partial": True, "interrupted": True} if said else {"interrupted": True}
    message = transcript.line({"role": "assistant", "content": said or INTERRUPTED, "metadata": metadata})
    return [{**message, "turn": broken.number if broken else last.get("turn"), **_correlation(last)}]


def _is_answer(message: Message) -> bool:
    return message.get("role") == "assistant" and not calls_in(message)


def _correlation(message: Message) -> dict[str, Any]:
    return {"correlation_id": message["correlation_id"]} if message.get("correlation_id") else {}


def _is_of_repair(line: Message) -> bool:
    metadata = line.get("metadata")
    return isinstance(metadata, dict) and ("repaired" in metadata or "interrupted" in metadata)


def _partial_text(messages: Sequence[Message], events: Iterable[StoredEvent]) -> str:
    """Return what had been streamed of an answer that is not among the messages, by the last attempt to get it."""
    answers = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
    unanswered = {message.get("id") for message in messages[answers[-1] if answers else 0 :]}
    pieces = [
        data
        for event in events
        if event.get("event") == PARTIAL and isinstance(data := event.get("data"), dict)
        if data.get("after") in unanswered
    ]
    last = pieces[-1].get("request_id") if pieces else None
    return "".join(str(piece.get("text") or "") for piece in pieces if piece.get("request_id") == last)


logger = logging.getLogger(__name__)

_INTERVAL_S = 0.5


class PartialAnswer:
    """Collects the text of an answer while it comes. `after` names the message that the answer will follow.

    An answer is over when the transcript has another message of the assistant, and begun anew when a provider that was
    cut off is asked again.
    """

    def __init__(self, write: Callable[..., Awaitable[Any]], transcript: Transcript) -> None:
        self._write, self._transcript = write, transcript
        self._answer: tuple[int, object] | None = None
        self._after: str | None = None
        self._unsaved: list[str] = []
        self._said: list[tuple[bool, str]] = []
        self._heard_from: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    def hear(self, event: str, data: Mapping[str, Any]) -> None:
        """Take a piece of an answer."""
        text = data.get(PIECES[event])
        kind = data.get("block_type") or data.get("type") or "text"
        if not isinstance(text, str) or not text or self._heard_from not in (None, event):
            return
        self._heard_from = event  # a loop may repeat what its provider streams
        self._begin(data.get("request_id"))
        self._said.append((kind == "text", text))
        if kind == "text":
            self._unsaved.append(text)
            if self._timer is None and (self._saving is None or self._saving.done()):
                self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._begin_to_save)

    def blocks(self) -> list[TextBlock | ThinkingBlock]:
        """Return what was said of the answer that is under way, thoughts first."""
        if self._answer is None or self._answer[0] != self._transcript.answers:
            return []
        thought, said = ("".join(text for is_text, text in self._said if is_text == kind) for kind in (False, True))
        blocks: list[TextBlock | ThinkingBlock] = [ThinkingBlock(thinking=thought)] if thought else []
        return [*blocks, TextBlock(text=said)] if said else blocks

    def _begin(self, request_id: object) -> None:
        answer = (self._transcript.answers, request_id)
        if answer != self._answer:
            self._answer, self._after = answer, self._transcript.last_id
            self._unsaved, self._said = [], []

    def _begin_to_save(self) -> None:
        self._timer = None
        self._saving = start_task(self._save())

    async def _save(self) -> None:
        text, self._unsaved = "".join(self._unsaved), []
        if text and self._answer is not None and self._answer[0] == self._transcript.answers:
            piece = {"text": text, "after": self._after, "request_id": self._answer[1]}
            try:
                await self._write(PARTIAL, piece)
            except SessionError as error:  # the caller who waits for the answer meets it as well
                logger.warning("a piece of an answer is not stored: %s", error)

    async def settle(self) -> None:
        """Forget what is unsaved: the turn has ended."""
        self._unsaved.clear()
        self._said.clear()
        self._answer = self._heard_from = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
            self._saving = None
