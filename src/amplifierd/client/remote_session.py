"""A session that runs in a daemon, driven like one that runs here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from amplifierd.session_store.record import Activity, SessionRecord
from amplifierd.sessions.announcements import STATUS
from amplifierd.sessions.approvers import Approver

from .daemon_client import DaemonClient, Event
from .remote_approvals import RemoteApprovals

_NAMES = {"timeout_s": "timeout_seconds"}


class RemoteSession:
    """One session of a daemon. A turn goes on in the daemon when nobody watches it any more."""

    def __init__(self, client: DaemonClient, shown: Mapping[str, Any], approver: Approver) -> None:
        self._client = client
        self._path = f"/sessions/{shown['session_id']}"
        self._approvals = RemoteApprovals(client, shown["session_id"], approver)
        self._note(shown)

    @classmethod
    async def create(cls, client: DaemonClient, body: Mapping[str, Any], approver: Approver) -> Self:
        """Begin a session with its modules loaded.

        Raises:
            ModuleLoadError: one that it cannot do without is broken; nothing is left of the session.
        """
        return cls(client, await client.post("/sessions", {**body, "load": True}), approver)

    @classmethod
    async def resume(cls, client: DaemonClient, session_id: str, approver: Approver) -> Self:
        """Go on with a stored session, or with one that others use as well."""
        return cls(client, await client.post(f"/sessions/{session_id}/resume"), approver)

    @classmethod
    async def find(cls, client: DaemonClient, session_id: str, approver: Approver) -> Self:
        """Return a session as it is; one that is not loaded stays so."""
        return cls(client, await client.get(f"/sessions/{session_id}"), approver)

    @property
    def session_id(self) -> str:
        return self.record.session_id

    def _note(self, shown: Mapping[str, Any]) -> None:
        self.record = SessionRecord.model_validate({name: value for name, value in shown.items() if name != "activity"})
        self.activity: Activity | None = shown.get("activity")

    async def refresh(self) -> None:
        """Ask what is stored about it now."""
        self._note(await self._client.get(self._path))

    # --- turns

    async def submit(self, prompt: str, *, queue: bool = False, **options: Any) -> dict[str, Any]:
        """Give it a prompt without watching what comes of it; with `queue` it waits for a running turn."""
        given = {_NAMES.get(name, name): value for name, value in options.items()}
        body = {"prompt": prompt, "queue": queue, "auto_resume": True, **given}
        return await self._client.post(f"{self._path}/execute/stream", body)

    async def stream(self, prompt: str, *, queue: bool = False, **options: Any) -> AsyncGenerator[Event, None]:
        """Run a prompt and yield its events, those of its children included; the last one is `execution:done`."""
        accepted = await self.submit(prompt, queue=queue, **options)
        after = int(parse_qs(urlsplit(accepted["events_url"]).query)["after"][0])
        is_begun = False
        async with aclosing(self._events(after)) as events:
            async for event in events:
                is_own = event.get("correlation_id") == accepted["correlation_id"]
                is_begun = is_begun or (is_own and event["event"] != STATUS)
                is_over = is_own and event["event"] == "execution:done" and event["session_id"] == self.session_id
                if not is_begun or (event.get("sequence") is None and not is_over):
                    continue
                if is_over:
                    await self.refresh()
                yield event
                if is_over:
                    return

    async def watch(self) -> AsyncGenerator[Event, None]:
        """Yield what happens from now on; the first event is `stream:connected`. Questions that wait are asked."""
        async with aclosing(self._events(None)) as events:
            async for event in events:
                if event["event"] == "stream:connected":
                    self.activity = event["data"].get("activity")
                    for asked in event["data"].get("pending_approvals") or ():
                        self._approvals.ask(asked["request_id"])
                yield event

    async def _events(self, after: int | None) -> AsyncGenerator[Event, None]:
        async with aclosing(self._client.events(f"{self._path}/stream", after=after)) as events:
            async for event in events:
                self._approvals.hear(event)
                if event["event"] == STATUS and event.get("session_id") == self.session_id:
                    self.activity = event["data"].get("activity")
                yield event

    async def steer(self, text: str) -> dict[str, Any]:
        """Let a text reach the running turn before its next provider call."""
        return await self._client.post(f"{self._path}/steer", {"content": text})

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]:
        """Stop the running turn, after the tools in flight or at once."""
        return await self._client.post(f"{self._path}/cancel", {"immediate": immediate})

    async def queued(self) -> list[str]:
        """Return the prompts that wait."""
        return list((await self._client.get(f"{self._path}/queue"))["queue"])

    async def remove_queued(self, position: int) -> str:
        """Take a waiting prompt out of the queue; the first one has position 1."""
        return str((await self._client.delete(f"{self._path}/queue/{position}"))["prompt"])

    async def close(self) -> None:
        """Stop answering its questions; the session itself stays as it is."""
        await self._approvals.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
