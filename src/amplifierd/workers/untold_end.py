"""The end of a turn that its session cannot tell: it never ran, or its session could not be brought back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_core.llm_errors import AbortError
from amplifierd.exceptions import PromptRemovedError
from amplifierd.live_sessions import LiveEvent
from amplifierd.problems import problem_document
from amplifierd.session_store.json_lines import encoded
from amplifierd.session_store.record import now
from amplifierd.sessions.uncounted import TURN_DONE

from .placed_session import Submission


def untold_end(submission: Submission, root_id: str, error: Exception | None = None) -> LiveEvent:
    """Return the event that ends a turn for whoever waits for it. It is in no session's files and has no number."""
    problem = broken_off(submission)["error"] if error is None else problem_document(error)
    data = {
        "status": "cancelled" if isinstance(error, PromptRemovedError) else "failed",
        "usage": {},
        "finish_reason": None,
        "response": None,
        "error": problem,
    }
    envelope = {
        "event": TURN_DONE,
        "sequence": None,
        "session_id": submission.session_id,
        "parent_id": None,
        "root_session_id": root_id,
        "timestamp": now(),
        "correlation_id": submission.correlation_id,
        "data": data,
    }
    return LiveEvent(TURN_DONE, submission.session_id, root_id, None, False, encoded(envelope))


def broken_off(submission: Submission) -> dict[str, Any]:
    """Return the result of a turn that ended with its worker."""
    problem: Mapping[str, Any] = problem_document(AbortError("the process that ran the turn ended before the turn did"))
    return {
        "response": "",
        "status": "failed",
        "session_id": submission.session_id,
        "turn": int(submission.correlation_id.rpartition("_")[2]),
        "correlation_id": submission.correlation_id,
        "finish_reason": None,
        "usage": {},
        "tool_calls": [],
        "error": problem,
    }
