"""A session that is loaded in a worker, and the turns that it was given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from amplifierd.store.record import Activity

from .live_sessions import LiveState, TurnRequest
from .worker_process import WorkerProcess


@dataclass(frozen=True)
class Submission:
    """A turn that was given to a worker, until it is over."""

    session_id: str
    correlation_id: str
    number: int
    turn: TurnRequest
    is_repeated: bool = False
    result: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def params(self) -> dict[str, Any]:
        """Return what the worker is asked for."""
        return {
            "session_id": self.session_id,
            "correlation_id": self.correlation_id,
            "prompt": self.turn.prompt,
            "metadata": dict(self.turn.metadata),
            "images": [dict(image) for image in self.turn.images],
            "queue": self.turn.queue,
            "timeout_s": self.turn.timeout_s,
            "deadline_s": self.turn.deadline_s,
            "priority": self.turn.priority,
            "client": asdict(self.turn.client) if self.turn.client is not None else None,
        }

    def settle(self, result: dict[str, Any] | None, error: Exception | None) -> None:
        """Tell waiting callers how it ended."""
        if self.result.done():
            return
        if error is not None:
            self.result.set_exception(error)
            self.result.exception()  # whether anyone waits is not known here
        else:
            self.result.set_result(result or {})


class PlacedSession:
    """Where a session is, what it was told to do, and what its worker said about it last."""

    def __init__(self, session_id: str, worker: WorkerProcess, told: Mapping[str, Any]) -> None:
        self.session_id, self.worker = session_id, worker
        self.told: Mapping[str, Any] = told
        self.unread_keys: Sequence[Mapping[str, Any]] = told.get("unread_keys") or ()
        self._was_repaired = bool(told.get("repaired"))
        self.submissions: dict[str, Submission] = {}
        self.is_leaving = False
        self._last_number = 0

    @property
    def is_busy(self) -> bool:
        """True if it has turns to run, or runs one that is not waited for."""
        return bool(self.submissions) or self.told["activity"] not in ("idle", None)

    @property
    def root_id(self) -> str:
        return str(self.told.get("root_session_id") or self.session_id)

    def state(self) -> LiveState:
        """Return what it does; a turn that its worker took counts before the worker says so."""
        activity: Activity = self.told["activity"] or "idle"
        return LiveState(
            self.session_id,
            "executing" if activity == "idle" and self.submissions else activity,
            self.worker.worker_id,
            tuple(self.told["pending_approvals"]),
        )

    def take_repaired(self) -> bool:
        """True if it was repaired when it was loaded; who asks next is told no."""
        was_repaired, self._was_repaired = self._was_repaired, False
        return was_repaired

    def reserve(self, turn: TurnRequest, *, is_repeated: bool = False) -> Submission:
        """Return the next turn, with an id: its own, else that of its number, unless a queued one is taken out.

        `is_repeated` says that it was given to another worker before, which ended before it had begun.
        """
        number = max(self._last_number, self.told["turn_count"]) + 1
        correlation_id = turn.correlation_id or f"prompt_{self.session_id}_{number}"
        submission = Submission(self.session_id, correlation_id, number, turn, is_repeated)
        self._last_number = number
        self.submissions[submission.correlation_id] = submission
        self.worker.turns.add(submission.correlation_id)
        self.worker.used_at = time.monotonic()
        return submission

    def take_back(self, submission: Submission) -> None:
        """Forget a turn that was refused; its number is free again."""
        self.ended(submission.correlation_id)
        self._last_number -= 1

    def renumber(self) -> None:
        """Count turns from what is stored again: some may have been removed."""
        if not self.submissions:
            self._last_number = 0

    def ended(self, correlation_id: str) -> Submission | None:
        self.worker.turns.discard(correlation_id)
        self.worker.used_at = time.monotonic()
        return self.submissions.pop(correlation_id, None)

    def leave(self) -> None:
        """Take note that it is not in its worker any more."""
        self.worker.sessions.discard(self.session_id)
        self.worker.turns.difference_update(self.submissions)
