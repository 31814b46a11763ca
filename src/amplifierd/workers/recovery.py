"""What becomes of a session whose worker ended: it is opened in another one, which makes its last turn whole."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from amplifier_core.exceptions import AmplifierError
from amplifier_core.llm_errors import AbortError
from amplifier_sessions.event_page import named_events
from amplifierd.exceptions import PromptRemovedError
from amplifierd.problems import problem_document
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.store.json_lines import encoded
from amplifierd.store.protocol import SessionStore, StoredEvent
from amplifierd.store.record import now

from .live_sessions import LiveEvent, OnEvent, SubmittedTurn, TurnRequest
from .placed_session import PlacedSession, Submission

logger = logging.getLogger(__name__)

Load = Callable[[str], Awaitable[PlacedSession]]


class Submit(Protocol):
    """Gives a session a turn."""

    def __call__(self, session_id: str, turn: TurnRequest, *, is_repeated: bool) -> Awaitable[SubmittedTurn]: ...


class Recovery:
    """Brings sessions back. Opening one stores and tells how its broken turn ended, and what became of its tools.

    `on_event` hears the end of every turn that no session tells any more; with a store that is shared, another member
    may still tell it.
    """

    def __init__(self, store: SessionStore, load: Load, submit: Submit, on_event: OnEvent, *, is_shared: bool) -> None:
        self._store, self._is_shared = store, is_shared
        self._load, self._submit, self._on_event = load, submit, on_event

    async def run(self, lost: PlacedSession) -> None:
        """Bring a session back if it had something to do, and answer everyone who waits for its turns."""
        if not lost.submissions and lost.told["activity"] == "idle":
            return
        waiting = tuple(lost.submissions.values())
        try:
            await self._load(lost.session_id)
            messages = await self._store.read_messages(lost.session_id)
            events = await named_events(self._store.read_event_page, lost.session_id, (TURN_DONE,))
        except (AmplifierError, OSError) as error:
            logger.error("session %s could not be brought back: %s", lost.session_id, error)  # noqa: TRY400 - an operator can act on the text alone
            for submission in waiting:
                if not self._is_shared:  # else the next holder tells how the turn ended
                    self._tell(submission, lost.root_id)
                submission.settle({**_outcome(submission), UNKNOWN: True}, None)
            return
        begun = {message.get("correlation_id") for message in messages}
        for submission in waiting:
            if submission.correlation_id in begun:
                submission.settle(_outcome(submission, events), None)
            elif submission.is_repeated:
                self._tell(submission, lost.root_id)
                submission.settle(_outcome(submission), None)
            else:
                await self._again(submission, lost.root_id)

    def _tell(self, submission: Submission, root_id: str, error: AmplifierError | None = None) -> None:
        """Tell the end of a turn that cannot be run or ended properly."""
        self._on_event(unpublished_end(submission.session_id, submission.correlation_id, root_id, error))

    async def _again(self, submission: Submission, root_id: str) -> None:
        """Submit a turn that had not begun, once; when that fails, or its worker ends as well, it has failed."""
        try:
            again = await self._submit(submission.session_id, submission.turn, is_repeated=True)
        except AmplifierError as error:
            self._tell(submission, root_id, error)
            submission.settle(None, error)
            return
        again.result.add_done_callback(lambda done: _pass_on(done, submission))


def _pass_on(done: Any, submission: Submission) -> None:
    if done.cancelled():
        submission.settle(_outcome(submission), None)
    else:
        submission.settle(None if done.exception() else done.result(), done.exception())


def _outcome(submission: Submission, events: Sequence[StoredEvent] = ()) -> dict[str, Any]:
    return stored_outcome(submission.session_id, submission.correlation_id, submission.number, events)


# The end of a turn that its session cannot tell: it never ran, or its session could not be brought back.


UNKNOWN = "is_unknown"
"""In the result of a turn: its session could not be brought back, so that it is not known whether it had begun."""


def unpublished_end(
    session_id: str,
    correlation_id: str,
    root_id: str,
    error: Exception | None = None,
    *,
    result: Mapping[str, Any] | None = None,
) -> LiveEvent:
    """Return the event that ends a turn for waiting clients. It is in no session's files and has no number.

    A turn whose end could not be stored has a `result`; one without it, and without an error, ended with its process.
    """
    problem = _aborted() if error is None else problem_document(error)
    status = "cancelled" if isinstance(error, PromptRemovedError) else "failed"
    data = {"status": status, "usage": {}, "finish_reason": None, "response": None, "error": problem}
    if result is not None:
        data = {name: result.get(name) for name in data}
    return unnumbered(TURN_DONE, session_id, correlation_id, root_id, data)


def unnumbered(name: str, session_id: str, correlation_id: str, root_id: str, data: Mapping[str, Any]) -> LiveEvent:
    """Return an event of a turn that is told and not stored."""
    envelope = {
        "event": name,
        "sequence": None,
        "cursor": None,
        "session_id": session_id,
        "parent_id": None,
        "root_session_id": root_id,
        "timestamp": now(),
        "correlation_id": correlation_id,
        "data": data,
    }
    return LiveEvent(name, session_id, root_id, None, False, encoded(envelope))


def stored_outcome(
    session_id: str, correlation_id: str, turn: int, events: Iterable[StoredEvent] = ()
) -> dict[str, Any]:
    """Return the result of a turn that ended with its process, as its session's events tell it."""
    own = [event for event in events if event.get("correlation_id") == correlation_id]
    done = next((event["data"] for event in reversed(own) if event.get("event") == TURN_DONE), None)
    broken_off: dict[str, Any] = {
        "response": "",
        "status": "failed",
        "session_id": session_id,
        "turn": turn,
        "correlation_id": correlation_id,
        "finish_reason": None,
        "usage": {},
        "tool_calls": [],
        "error": _aborted(),
    }
    if done is None:
        return broken_off
    return {**broken_off, "error": None, **done, "response": done.get("response") or ""}


def _aborted() -> dict[str, Any]:
    return problem_document(AbortError("the process that ran the turn ended before the turn did"))
