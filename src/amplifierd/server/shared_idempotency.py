"""Requests that may be sent twice, to any member of a cluster: what the first one was answered is kept in its store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from amplifier_system.tasks import start_task
from amplifierd.exceptions import StoreUnavailableError

from .idempotency import KEPT_S, MAX_ANSWER_BYTES, StoredAnswer, Work, conflict, interrupted

if TYPE_CHECKING:
    from amplifierd.store.postgres.shared_values import SharedValues

logger = logging.getLogger(__name__)

KIND = "request"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

Answered = tuple[StoredAnswer, bool]
Known = dict[str, Any]


class SharedIdempotencyKeys:
    """The keys of a cluster. `own_id` returns this member, `is_live` says whether another one is there."""

    def __init__(self, shared: SharedValues, own_id: Callable[[], str], is_live: Callable[[str], bool]) -> None:
        self._shared, self._own_id, self._is_live = shared, own_id, is_live
        self._running: dict[str, tuple[str, asyncio.Task[Answered]]] = {}

    async def once(self, owner: str, key: str, fingerprint: str, work: Work) -> tuple[StoredAnswer, bool]:
        """Do the work of a request unless it was done, and return its answer, and whether that was kept from before.

        The work is finished even if the caller goes away. What it raises is not kept: nothing was done.

        Raises:
            IdempotencyConflictError: the key belongs to another request.
            RequestInterruptedError: the member that worked on the first one did not live to see its end.
        """
        name = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()
        if name in self._running:
            known, task = self._running[name]
            if known != fingerprint:
                raise conflict(key)
            return (await asyncio.shield(task))[0], True
        task = start_task(self._answered(name, key, fingerprint, work))
        self._running[name] = fingerprint, task
        task.add_done_callback(lambda done: self._running.pop(name, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what runs."""
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)

    async def _answered(self, name: str, key: str, fingerprint: str, work: Work) -> Answered:
        mine = {"fingerprint": fingerprint, "state": "running", "member": self._own_id(), "nonce": uuid.uuid4().hex}
        pause_s = _FIRST_PAUSE_S
        while (there := await self._shared.put_if_absent(KIND, name, mine, expires_in_s=KEPT_S)) is not None:
            if there["nonce"] == mine["nonce"]:  # it was put by an attempt whose answer was lost
                break
            if there["fingerprint"] != fingerprint:
                raise conflict(key)
            if there["state"] == "done":
                return _kept(there), True
            if there["member"] == self._own_id() or not self._is_live(there["member"]):
                raise interrupted()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return await self._done(name, mine, work), False

    async def _done(self, name: str, mine: Known, work: Work) -> StoredAnswer:
        try:
            answer = await work()
        except BaseException:
            await self._shared.delete(KIND, name)
            raise
        kept = asdict(answer) if len(answer.body) <= MAX_ANSWER_BYTES else None
        try:
            await self._shared.put(KIND, name, {**mine, "state": "done", "answer": kept}, expires_in_s=KEPT_S)
        except StoreUnavailableError as error:
            logger.warning("the answer to a request is not kept: %s", error)
        return answer


def _kept(there: Known) -> StoredAnswer:
    if there["answer"] is None:
        raise interrupted()
    return StoredAnswer(**there["answer"])
