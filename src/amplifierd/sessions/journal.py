"""The journal of one session: every event is numbered, stored and told, in this order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator, events
from amplifier_core.utils import json_safe
from amplifierd.exceptions import HoldLostError, SessionError
from amplifierd.session_store.protocol import Hold, SessionStore, StoredEvent
from amplifierd.session_store.record import SessionRecord, now

from .secret_values import SecretValues
from .tree_events import Event, TreeEvents, is_delta

logger = logging.getLogger(__name__)

PRIORITY = 1_000_000_000
"""Heard after every other handler: what is written is what redaction and the others made of it."""

_FIRST = -PRIORITY

_LEVELS = {"error": "ERROR", "warning": "WARNING"}
_MODULE_EVENTS = (
    "provider:throttle",
    "provider:resolve",
    "provider:tool_sequence_repaired",
    "llm:stream_block_start",
    "llm:stream_block_delta",
    "llm:stream_block_end",
    "llm:stream_aborted",
    "content_block:start",
    "content_block:delta",
    "content_block:end",
    "thinking:delta",
    "thinking:final",
    "context:compaction",
    "context:include",
    "policy:violation",
    "approval:required",
    "approval:granted",
    "approval:denied",
    "delegate:agent_spawned",
    "delegate:agent_resumed",
    "delegate:agent_completed",
    "delegate:agent_cancelled",
    "delegate:error",
    "mentions:resolved",
    "module:on_session_ready_failed",
    "orchestrator:steering_injected",
    "orchestrator:rate_limit_delay",
    "session:config",
)
_KEPT_ELSEWHERE = {
    "provider:request": ("messages",),
    "llm:request": ("raw",),
    "llm:response": ("raw",),
    "tool:post": ("result", "tool_result"),
}
"""What a stored event leaves out, because the stored requests, the transcript and the receipts have it."""

_RECEIPTS = frozenset({"tool:intent", "tool:outcome"})
"""Stored as they are: after a crash the model is told from them what its tools returned."""

_TELLING = (
    *("session:start", "session:resume", "session:fork", "session:end", "session:config"),
    *("module:load_failed", "module:on_session_ready_failed"),
    *("provider:error", "provider:retry", "llm:request", "llm:response"),
)
"""Events with configurations and errors in them: secrets are masked before any module that logs hears of them."""

NOT_NESTED: Mapping[str, Any] = MappingProxyType({})


class Journal:
    """Writes what happens in a session down and passes it on to the tree's subscribers.

    `correlation_id` is that of the prompt that everything below it belongs to. A child's events say how deep it is and
    which tool call it serves.
    """

    def __init__(
        self, store: SessionStore, hold: Hold, record: SessionRecord, tree: TreeEvents, secrets: SecretValues
    ) -> None:
        self.correlation_id: str | None = None
        self.lost: HoldLostError | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self.nesting: Mapping[str, Any] = NOT_NESTED
        self._store, self._hold, self._tree, self._secrets = store, hold, tree, secrets
        self._record, self._session_id = record, record.session_id
        self._coordinator: ModuleCoordinator | None = None
        self._registered: set[str] = set()

    async def write(self, event: str, data: Mapping[str, Any], *, lasting: bool = False) -> Event:
        """Store an event of ours and tell it."""
        return (await self.write_all([(event, data)], lasting=lasting))[0]

    async def write_all(
        self, entries: Sequence[tuple[str, Mapping[str, Any]]], *, lasting: bool = False
    ) -> list[Event]:
        """Store events of ours in one step, all of them or none, and tell them."""
        cleaned = [(name, *self._cleaned(name, json_safe(dict(data)), by_name=False)) for name, data in entries]
        told = [(self._event(name, data), stored) for name, data, stored in cleaned]
        with self._tree.telling(*(event for event, _ in told)):
            await self._append(*told, lasting=lasting)
        return [event for event, _ in told]

    async def hear(self, event: str, data: dict[str, Any]) -> HookResult:
        """Record an event of the kernel or of a module; deltas are told, not stored."""
        left_out = _KEPT_ELSEWHERE.get(event, ())
        kept = {key: value for key, value in data.items() if key not in left_out}
        told_data, stored = self._cleaned(event, json_safe(kept), by_name=True)
        await self._tell_anyway(self._event(event, told_data), stored)
        return HookResult()

    async def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Tell an event of ours, also when it cannot be stored."""
        await self._tell_anyway(self._event(event, data), data)

    async def _tell_anyway(self, told: Event, stored: Any) -> None:
        with self._tree.telling(told):
            if not is_delta(told["event"]):
                await self._try_append(told, stored)

    async def _try_append(self, told: Event, stored: Any) -> None:
        try:
            await self._append((told, stored))
        except HoldLostError:
            raise
        except SessionError as error:
            logger.warning("event %s of session %s is not stored: %s", told["event"], self._session_id, error)

    async def mask(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take the secrets out of an event before others hear it."""
        masked = self._secrets.masked(data)
        return HookResult() if masked == data else HookResult(action="modify", data=masked)

    async def listen(self, coordinator: ModuleCoordinator) -> None:
        """Hear every event that is known of: the kernel's, those of modules we know, those that modules announce."""
        announced = await coordinator.collect_contributions("observability.events")
        names = {name for names in announced if isinstance(names, list | tuple) for name in names}
        self.listen_to(
            coordinator, [*events.ALL_EVENTS, *_MODULE_EVENTS, *sorted(n for n in names if isinstance(n, str))]
        )

    def listen_to(self, coordinator: ModuleCoordinator, names: list[str]) -> None:
        if coordinator is not self._coordinator:  # the modules were loaded anew
            self._coordinator, self._registered = coordinator, set()
        for name in names:
            if name not in self._registered:
                self._registered.add(name)
                coordinator.hooks.register(name, self.hear, priority=PRIORITY, name="session-journal")
                if name in _TELLING:
                    coordinator.hooks.register(name, self.mask, priority=_FIRST, name="session-secrets")

    async def _append(self, *told: tuple[Event, Any], lasting: bool = False) -> None:
        try:
            await self._store.append_events(
                self._hold, [stored_line(event, stored, self.nesting) for event, stored in told], lasting=lasting
            )
        except HoldLostError as error:
            if self.lost is None:
                self.lost = error
                self.on_lost()
            raise

    def _event(self, event: str, data: Any) -> Event:
        sequence = self._tree.next_sequence()
        return event_of(event, data, self._record, sequence, correlation_id=self.correlation_id, nesting=self.nesting)

    def _cleaned(self, event: str, data: dict[str, Any], *, by_name: bool) -> tuple[Any, Any]:
        """Return an event's data as it is told, and as it is stored."""
        told, stored = self._secrets.cleaned(data, by_name=by_name)
        return told, told if event in _RECEIPTS else stored


def nesting_of(depth: int, tool_call_id: str | None) -> dict[str, Any]:
    """Return what the events of a child say about its place in the tree."""
    return {"nesting_depth": depth, "parent_tool_call_id": tool_call_id}


def event_of(
    name: str,
    data: Any,
    record: SessionRecord,
    sequence: int | None,
    *,
    correlation_id: str | None = None,
    nesting: Mapping[str, Any] = NOT_NESTED,
) -> Event:
    """Return an event of a session as it is told."""
    return {
        "event": name,
        "sequence": sequence,
        "session_id": record.session_id,
        "parent_id": record.parent_session_id,
        "root_session_id": record.root_id,
        "timestamp": now(),
        "correlation_id": correlation_id,
        **nesting,
        "data": data,
    }


def stored_line(told: Event, data: Any, nesting: Mapping[str, Any] = NOT_NESTED) -> StoredEvent:
    """Return an event as it is stored, with the data that is kept of it."""
    name = told["event"]
    level = _LEVELS.get(str(told["data"].get("level")), "ERROR" if name.endswith(":error") else "INFO")
    head = {"seq": told["sequence"], "ts": told["timestamp"], "lvl": level, "event": name}
    ids = {key: told[key] for key in ("session_id", "parent_id", "correlation_id")}
    return {**head, **ids, **nesting, "data": data}
