"""What a crash left of a session's last turn, and how the transcript is made whole again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from amplifier_core.utils.tool_messages import Call, calls_in, results_in
from amplifierd.session_store.protocol import Message, StoredEvent

from .receipts import CallState, Check, ReceiptBook
from .transcript import Transcript, for_context

PARTIAL = "assistant_message:partial"
INTERRUPTED = "The turn was interrupted before it ended."

_DONE, _SAVED = "execution:done", "user_message:saved"


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


@dataclass(frozen=True)
class Repair:
    """A transcript made whole: `added` goes to its end; when it has to be rewritten, `rewritten` is all of it."""

    report: RepairReport
    added: tuple[Message, ...] = ()
    rewritten: tuple[Message, ...] | None = None


async def repair(
    session_id: str,
    messages: Sequence[Message],
    events: Sequence[StoredEvent],
    transcript: Transcript,
    check: Check | None = None,
) -> Repair:
    """Answer every tool call that has no result, keep what was said of an answer, and close the broken turn."""
    book = ReceiptBook.of(events)
    whole: list[Message] = []
    calls: list[RepairedCall] = []
    added_at_end: list[Message] = []
    is_rewritten = False
    answered = {result.call_id for message in messages for result in results_in(message) or ()}
    for index, message in enumerate(messages):
        whole.append(message)
        missing = [call for call in calls_in(message) if call.id not in answered]
        if message.get("role") != "assistant" or not missing:
            continue
        stand_ins = [await _stand_in(call, message, book, transcript, calls, check) for call in missing]
        if all(results_in(later) for later in messages[index + 1 :]):
            added_at_end += stand_ins
        else:
            whole += stand_ins
            is_rewritten = True
    whole += added_at_end
    tail, partial, turn = _closing([*whole], events, transcript, has_stand_ins=bool(added_at_end))
    report = RepairReport(session_id, tuple(calls), partial, turn)
    if is_rewritten:
        return Repair(report, rewritten=(*whole, *tail))
    return Repair(report, added=(*added_at_end, *tail))


async def _stand_in(
    call: Call,
    message: Message,
    book: ReceiptBook,
    transcript: Transcript,
    calls: list[RepairedCall],
    check: Check | None,
) -> Message:
    state, content = await book.settle(call, check)
    calls.append(RepairedCall(call.id, call.name, state))
    metadata = {"repaired": state}
    answer = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content, "metadata": metadata}
    return {**transcript.line(answer), "turn": message.get("turn", transcript.turn)}


def _closing(
    whole: list[Message], events: Sequence[StoredEvent], transcript: Transcript, *, has_stand_ins: bool
) -> tuple[list[Message], bool, int | None]:
    """Return the messages that end a turn which a crash ended: what was said of an answer, and that it broke off."""
    turn = _broken_turn(events)
    if not whole or (turn is None and not has_stand_ins):
        return [], False, None
    last = whole[-1]
    said = _partial_text(events, str(last.get("id")))
    number = last.get("turn") if isinstance(last.get("turn"), int) else turn
    if said:
        metadata: dict[str, Any] = {"partial": True, "interrupted": True}
        message = transcript.line({"role": "assistant", "content": said, "metadata": metadata})
    elif last.get("role") == "assistant" and not calls_in(last):
        return [], False, None
    else:
        message = transcript.line({"role": "assistant", "content": INTERRUPTED, "metadata": {"interrupted": True}})
    return [{**message, "turn": number}], bool(said), number


def _broken_turn(events: Sequence[StoredEvent]) -> int | None:
    """Return the number of the turn that was begun and never ended."""
    for event in reversed(events):
        name, data = event.get("event"), event.get("data")
        if name == _DONE:
            return None
        if name == _SAVED and isinstance(data, Mapping):
            turn = data.get("turn")
            return turn if isinstance(turn, int) else 0
    return None


def _partial_text(events: Sequence[StoredEvent], last_message_id: str) -> str:
    """Return what had been streamed of the answer that would have followed the last message."""
    pieces = (
        event["data"] for event in events if event.get("event") == PARTIAL and isinstance(event.get("data"), dict)
    )
    return "".join(str(piece.get("text") or "") for piece in pieces if piece.get("after") == last_message_id)


def as_history(messages: Sequence[Message]) -> list[Message]:
    """Return a transcript as the context takes it."""
    return [for_context(message) for message in messages]
