"""The end of a turn that its session cannot tell: it never ran, or its session could not be brought back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from amplifier_core.llm_errors import AbortError
from amplifierd.exceptions import PromptRemovedError
from amplifierd.live_sessions import LiveEvent
from amplifierd.problems import problem_document
from amplifierd.session_store.json_lines import encoded
from amplifierd.session_store.protocol import StoredEvent
from amplifierd.session_store.record import now
from amplifierd.sessions.uncounted_usage import TURN_DONE

UNKNOWN = "is_unknown"
"""In the result of a turn: its session could not be brought back, so that it is not known whether it had begun."""


def untold_end(
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
