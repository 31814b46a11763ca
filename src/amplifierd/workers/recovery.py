"""What becomes of a session whose worker ended: it is opened in another one, which makes its last turn whole."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from amplifier_core.exceptions import AmplifierError
from amplifier_core.llm_errors import AbortError
from amplifierd.home import Home
from amplifierd.live_sessions import Questions, SubmittedTurn, TurnRequest
from amplifierd.problems import problem_document
from amplifierd.session_store.protocol import StoredEvent

from .placed_session import PlacedSession, Submission

logger = logging.getLogger(__name__)

_DONE = "execution:done"

Load = Callable[[str, Questions], Awaitable[PlacedSession]]


class Submit(Protocol):
    """Gives a session a turn."""

    def __call__(self, session_id: str, turn: TurnRequest, *, is_repeated: bool) -> Awaitable[SubmittedTurn]: ...


class Recovery:
    """Brings sessions back. Opening one stores and tells how its broken turn ended, and what became of its tools."""

    def __init__(self, home: Home, load: Load, submit: Submit) -> None:
        self._store = home.sessions.runtime.store
        self._load, self._submit = load, submit

    async def run(self, lost: PlacedSession) -> None:
        """Bring a session back if it had something to do, and answer everyone who waits for its turns."""
        if not lost.submissions and lost.told["activity"] == "idle":
            return
        waiting = tuple(lost.submissions.values())
        try:
            await self._load(lost.session_id, lost.questions)
            messages = await self._store.read_messages(lost.session_id)
            events = await self._store.read_events(lost.session_id)
        except (AmplifierError, OSError) as error:
            logger.error("session %s could not be brought back: %s", lost.session_id, error)  # noqa: TRY400 - an operator can act on the text alone
            for submission in waiting:
                submission.settle(_broken_off(submission), None)
            return
        begun = {message.get("correlation_id") for message in messages}
        for submission in waiting:
            if submission.correlation_id in begun:
                submission.settle(_outcome(submission, events), None)
            elif submission.is_repeated:
                submission.settle(_broken_off(submission), None)
            else:
                await self._again(submission)

    async def _again(self, submission: Submission) -> None:
        """Submit a turn that had not begun, once; when that fails, or its worker ends as well, it has failed."""
        try:
            again = await self._submit(submission.session_id, submission.turn, is_repeated=True)
        except AmplifierError as error:
            submission.settle(None, error)
            return
        again.result.add_done_callback(lambda done: _pass_on(done, submission))


def _pass_on(done: Any, submission: Submission) -> None:
    if done.cancelled():
        submission.settle(_broken_off(submission), None)
    else:
        submission.settle(None if done.exception() else done.result(), done.exception())


def _outcome(submission: Submission, events: Sequence[StoredEvent]) -> dict[str, Any]:
    """Return how a turn ended, as it is stored."""
    own = [event for event in events if event.get("correlation_id") == submission.correlation_id]
    done = next((event["data"] for event in reversed(own) if event.get("event") == _DONE), None)
    if done is None:
        return _broken_off(submission)
    return {**_broken_off(submission), "error": None, **done, "response": done.get("response") or ""}


def _broken_off(submission: Submission) -> dict[str, Any]:
    """Return the result of a turn that ended with its worker."""
    return {
        "response": "",
        "status": "failed",
        "session_id": submission.session_id,
        "turn": int(submission.correlation_id.rpartition("_")[2]),
        "correlation_id": submission.correlation_id,
        "finish_reason": None,
        "usage": {},
        "tool_calls": [],
        "error": problem_document(AbortError("the process that ran the turn ended before the turn did")),
    }
