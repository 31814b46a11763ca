"""A session that runs in a daemon, driven like one that runs here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

from amplifier_core.events import APPROVAL_REQUIRED
from amplifier_core.exceptions import AmplifierError
from amplifier_system.permission_levels import PermissionLevel
from amplifier_system.tasks import start_task
from amplifierd.checkpoints import Changes, UndoResult
from amplifierd.exceptions import (
    ApprovalAlreadyResolvedError,
    ApprovalExpiredError,
    ApprovalNotFoundError,
    PromptRemovedError,
)
from amplifierd.sessions.conversation.compaction import Compaction
from amplifierd.sessions.events.announcements import STATUS
from amplifierd.sessions.layers.request_parts import RequestPart
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.sessions.questions.approval import Approval, Approver
from amplifierd.sessions.questions.approvals import APPROVAL_EXPIRED, APPROVAL_PENDING, APPROVAL_RESOLVED
from amplifierd.sessions.questions.lasting_approvals import RememberedApproval
from amplifierd.sessions.turn_result import TurnResult
from amplifierd.sessions.unread_keys import UnreadKey
from amplifierd.store.cursor import Cursor
from amplifierd.store.protocol import Message
from amplifierd.store.record import Activity, SessionRecord

from .daemon_client import DaemonClient, Event

_NAMES = {"timeout_s": "timeout_seconds", "deadline_s": "deadline_seconds"}
_BESIDE = frozenset({"activity", "resumed", "repaired", "unread_keys"})
_PAGE = 1000
_AT_REST: tuple[Activity | None, ...] = ("idle", None)


class RemoteSession:
    """One session of a daemon. A turn goes on in the daemon when it is no longer watched."""

    def __init__(self, client: DaemonClient, shown: Mapping[str, Any], approver: Approver) -> None:
        self.client = client
        self.path = f"/sessions/{shown['session_id']}"
        self._approvals = RemoteApprovals(client, shown["session_id"], approver)
        self._submitting = asyncio.Lock()  # prompts wait there in the order in which they were given
        self._note(shown)
        self.repaired = bool(shown.get("repaired"))
        self.unread_keys: tuple[UnreadKey, ...] = tuple(
            UnreadKey(one["module_id"], one["key"], tuple(one["known"])) for one in shown.get("unread_keys") or ()
        )
        client.after_restart.append(self._come_back)

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
        stored = {name: value for name, value in shown.items() if name not in _BESIDE}
        self.record = SessionRecord.model_validate(stored)
        self.activity: Activity | None = shown.get("activity")

    async def _come_back(self) -> None:
        """Load it in another daemon, which repairs what the one before left of a turn and tells its end."""
        if self.activity is not None:
            self._note(await self.client.post(f"{self.path}/resume"))

    async def read(self) -> SessionRecord:
        """Return what is stored about it now."""
        self._note(await self.client.get(self.path))
        return self.record

    async def messages(self) -> list[Message]:
        """Return the transcript."""
        found: list[Message] = []
        while True:
            before = found[0]["id"] if found else None
            page = await self.client.get(f"{self.path}/transcript", limit=_PAGE, before=before)
            found = [*page["messages"], *found]
            if not page["has_more"]:
                return found

    # --- turns

    async def submit(self, prompt: str, *, queue: bool = False, **options: Any) -> dict[str, Any]:
        """Give it a prompt without watching what comes of it; with `queue` it waits for a running turn."""
        given = {_NAMES.get(name, name): value for name, value in options.items()}
        body = {"prompt": prompt, "queue": queue, "auto_resume": True, **given}
        async with self._submitting:
            accepted = await self.client.post(f"{self.path}/execute/stream", body)
        if self.activity in _AT_REST:
            self.activity = "executing"
        return accepted

    async def execute(self, prompt: str, *, queue: bool = False, **options: Any) -> TurnResult:
        """Run a prompt to its end. What goes wrong inside the turn is in the result.

        Raises:
            PromptRemovedError: it was taken out of the queue, or is held there since its daemon ended.
        """
        last: Event = {}
        async with aclosing(self.stream(prompt, queue=queue, **options)) as events:
            async for event in events:
                last = event
        done = last["data"]
        return TurnResult(
            response=done.get("response") or "",
            status=done["status"],
            session_id=self.session_id,
            turn=done.get("turn") or 0,
            correlation_id=str(last.get("correlation_id")),
            finish_reason=done.get("finish_reason"),
            usage=done.get("usage") or {},
            error=done.get("error"),
        )

    async def stream(self, prompt: str, *, queue: bool = False, **options: Any) -> AsyncGenerator[Event, None]:
        """Run a prompt and yield its events, those of its children included; the last one is `execution:done`.

        Raises:
            PromptRemovedError: it was taken out of the queue, or is held there since its daemon ended.
        """
        accepted = await self.submit(prompt, queue=queue, **options)
        after = Cursor(0, int(parse_qs(urlsplit(accepted["events_url"]).query)["after"][0]))
        is_begun = False
        async with aclosing(self._events(after)) as events:
            async for event in events:
                is_own = event.get("correlation_id") == accepted["correlation_id"]
                is_over = is_own and event["event"] == "execution:done" and event["session_id"] == self.session_id
                is_of_session = Cursor.of_event(event) is not None
                is_passed_over = self._is_at_rest(event) or (is_over and not is_of_session)
                if accepted["status"] == "queued" and not is_begun and is_passed_over:
                    raise _not_sent(prompt, event["data"].get("error"))
                is_begun = is_begun or (is_own and event["event"] != STATUS)
                if not is_begun or not (is_of_session or is_over):
                    continue
                yield event
                if is_over:
                    with suppress(AmplifierError):  # a daemon that is gone: the record stays as it was known
                        self._note(await self.client.get_now(self.path))
                    return

    def _is_at_rest(self, event: Event) -> bool:
        """True if an event tells that the session has nothing to do."""
        is_own = event["event"] == STATUS and event.get("session_id") == self.session_id
        return is_own and event["data"].get("activity") in _AT_REST

    async def subscribe(self) -> AsyncIterator[Event]:
        """Watch what happens from now on: once this is awaited, nothing is missed."""
        events = self.watch()
        await anext(events)  # stream:connected
        return events

    async def watch(self) -> AsyncGenerator[Event, None]:
        """Yield what happens from now on; the first event is `stream:connected`. Questions that wait are asked."""
        async with aclosing(self._events(None)) as events:
            async for event in events:
                if event["event"] == "stream:connected":
                    self.activity = event["data"].get("activity")
                    for asked in event["data"].get("pending_approvals") or ():
                        self._approvals.ask(asked["request_id"])
                yield event

    async def _events(self, after: Cursor | None) -> AsyncGenerator[Event, None]:
        async with aclosing(self.client.events(f"{self.path}/stream", after=after)) as events:
            async for event in events:
                self._approvals.hear(event)
                if event["event"] == STATUS and event.get("session_id") == self.session_id:
                    self.activity = event["data"].get("activity")
                yield event

    async def steer(self, text: str) -> dict[str, Any]:
        """Let a text reach the running turn before its next provider call."""
        return await self.client.post(f"{self.path}/steer", {"content": text})

    async def cancel(self, *, immediate: bool = False, withdraw: bool = False) -> dict[str, Any]:
        """Stop the running turn, after the tools in flight or at once; `withdraw` empties the queue before that."""
        return await self.client.post(f"{self.path}/cancel", {"immediate": immediate, "withdraw": withdraw})

    async def queued(self) -> Sequence[str]:
        """Return the prompts that wait."""
        async with self._submitting:
            return list((await self.client.get(f"{self.path}/queue"))["queue"])

    async def remove_queued(self, position: int) -> str:
        """Take a waiting prompt out of the queue; the first one has position 1."""
        return str((await self.client.delete(f"{self.path}/queue/{position}"))["prompt"])

    # --- beside turns

    async def tools(self) -> list[dict[str, Any]]:
        """Return the tools that its model is offered, as `{name, description, input_schema}`."""
        return list((await self.client.get(f"{self.path}/tools", limit=1000))["tools"])

    async def last_request(self) -> Sequence[RequestPart]:
        """Return what the last request to a model was made of, empty when there was none."""
        total = (await self.client.get(f"{self.path}/requests", limit=1))["total"]
        if not total:
            return ()
        (last,) = (await self.client.get(f"{self.path}/requests", limit=1, offset=total - 1))["requests"]
        request = await self.client.get(f"{self.path}/requests/{quote(last['request_id'], safe='')}")
        return [RequestPart.from_json(part) for part in request["parts"]]

    async def change_profile(self, profile: str) -> None:
        """Go on with another profile, or with the newest build of its own; a running turn is waited for."""
        self._note(await self.client.post(f"{self.path}/change-profile", {"profile_name": profile}))

    async def choose_level(self, level: PermissionLevel) -> None:
        """Change what it may do without asking, from its next call of a tool on."""
        self._note(await self.client.patch(self.path, {"permission_level": level}))

    async def remembered_approvals(self) -> list[RememberedApproval]:
        """What was answered with "always", as far as it counts in this session."""
        found = await self.client.get(f"{self.path}/permissions")
        return [RememberedApproval.read(one) for one in found["remembered"]]

    async def revoke_approval(self, approval_id: str) -> None:
        """Ask again about what an answer stood for."""
        await self.client.delete(f"{self.path}/permissions/{approval_id}")

    async def change_agent(self, **wanted: Any) -> None:
        """Go on with another `provider`, `model`, `effort` or `max_iterations`; a running turn is waited for."""
        self._note(await self.client.post(f"{self.path}/change-agent", wanted))

    async def modes(self) -> dict[str, Any]:
        """The mode that is on, and those that there are."""
        return await self.client.get(f"{self.path}/mode")

    async def choose_mode(self, name: str | None) -> dict[str, Any]:
        """Enter a mode, or leave the one that is on."""
        return await self.client.post(f"{self.path}/mode", {"name": name})

    async def skills(self) -> dict[str, Any]:
        """The skills that it can load, and what is wrong with skills."""
        return await self.client.get(f"{self.path}/skills")

    async def compact(self) -> Compaction:
        """Leave older parts of the conversation out of what the model sees; the session keeps all of them."""
        return Compaction.from_json(await self.client.post(f"{self.path}/compact"))

    async def rename(self, name: str) -> None:
        """Give it a name; an empty one takes it away."""
        self._note(await self.client.patch(self.path, {"name": name}))

    async def changes(self, turn: int) -> Changes:
        """Return what a turn changed in the working directory."""
        found = await self.client.get(f"{self.path}/changes", turn=turn)
        return Changes(
            added=tuple(found["added"]),
            modified=tuple(found["modified"]),
            deleted=tuple(found["deleted"]),
            diff=found["diff"],
            is_cut=found["is_cut"],
            complete=found["complete"],
            reason=found["reason"],
        )

    async def undo(self, turn: int, *, force: bool = False) -> UndoResult:
        """Take back what a turn changed, in files and conversation."""
        return undone(await self.client.post(f"{self.path}/undo", {"turn": turn, "force": force}))

    async def fork(self, turn: int | None = None) -> str:
        """Store a session that goes on from a turn, by default the last; returns its id."""
        return str((await self.client.post(f"{self.path}/fork", {"turn": turn}))["session_id"])

    async def close(self) -> None:
        """Stop answering its questions; the session itself stays as it is."""
        if self._come_back in self.client.after_restart:
            self.client.after_restart.remove(self._come_back)
        await self._approvals.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _not_sent(prompt: str, problem: Mapping[str, Any] | None) -> PromptRemovedError:
    """Return the error for a queued prompt that was never run."""
    why = f" ({problem['detail']})" if problem and problem.get("detail") else ""
    return PromptRemovedError(f"this was not sent: {prompt}{why}", hint="send it again, or look for it in the queue")


def undone(found: Mapping[str, Any]) -> UndoResult:
    """Return what a daemon answers when it has taken back what a turn changed."""
    lists = {name: tuple(found[name]) for name in ("restored", "foreign", "not_empty")}
    return UndoResult(done=found["done"], **lists, before=None, after=None)


_TOO_LATE = (ApprovalAlreadyResolvedError, ApprovalExpiredError, ApprovalNotFoundError)
logger = logging.getLogger(__name__)


class RemoteApprovals:
    """Hears the events of a session, and has its questions answered by `approver`."""

    def __init__(self, client: DaemonClient, session_id: str, approver: Approver) -> None:
        self._client, self._path, self._approver = client, f"/sessions/{session_id}/approvals", approver
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._looking: set[asyncio.Task[None]] = set()

    def hear(self, event: Event) -> None:
        """Begin to ask when a question comes, and stop when it has its answer or its turn is over."""
        if event["event"] == TURN_DONE and self._asking:
            looking = start_task(self._withdraw(tuple(self._asking)))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        request_id = str((event.get("data") or {}).get("request_id") or "")
        if not request_id:
            return
        if event["event"] in (APPROVAL_REQUIRED, APPROVAL_PENDING):
            self.ask(request_id)
        elif event["event"] in (APPROVAL_RESOLVED, APPROVAL_EXPIRED) and request_id in self._asking:
            self._asking[request_id].cancel()

    def ask(self, request_id: str) -> None:
        """Have a question answered, once."""
        if request_id not in self._asking:
            task = self._asking[request_id] = start_task(self._answer(request_id))
            task.add_done_callback(lambda done: self._is_over(request_id, done))

    def _is_over(self, request_id: str, done: asyncio.Task[None]) -> None:
        self._asking.pop(request_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.warning("the question %s was not answered from here: %s", request_id, error, exc_info=error)

    async def _answer(self, request_id: str) -> None:
        pending = (await self._client.get(self._path))["pending"]
        asked = next((one for one in pending if one["request_id"] == request_id), None)
        if asked is None:
            return
        decided = await self._approver.decide(Approval.read(asked))
        body = {"decision": decided.decision, "reason": decided.reason, "remember": decided.remember}
        try:
            await self._client.post(f"{self._path}/{request_id}", body)
        except _TOO_LATE:
            return

    async def _withdraw(self, asked: Iterable[str]) -> None:
        """Stop asking what is no longer waited for: a process that was killed with its turn does not say so."""
        with suppress(AmplifierError):  # without a daemon nothing is known about them
            pending = {one["request_id"] for one in (await self._client.get(self._path))["pending"]}
            for request_id in asked:
                if request_id in self._asking and request_id not in pending:
                    self._asking[request_id].cancel()

    async def close(self) -> None:
        tasks = [*self._asking.values(), *self._looking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
