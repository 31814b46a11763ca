"""The runner of one session: a stored plan becomes a kernel session, prompts become turns, and all of it is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from amplifier_core.boundary import TaskBoundary, settle
from amplifier_system.permission_levels import Permissions
from amplifierd.exceptions import NothingToSteerError
from amplifierd.limits import Limits
from amplifierd.sessions.conversation.interruption import PartialAnswer, RepairReport
from amplifierd.sessions.conversation.transcript import Transcript, last_turn
from amplifierd.sessions.events.journal import NOT_NESTED, Journal, nesting_of
from amplifierd.sessions.events.session_status import SessionStatus
from amplifierd.sessions.layers.budget_layer import BudgetLayer
from amplifierd.sessions.layers.calls import CallLayer
from amplifierd.sessions.layers.checkpointing import TurnCheckpoints
from amplifierd.sessions.layers.client_turns import ClientTurns
from amplifierd.sessions.layers.receipts import Receipts
from amplifierd.sessions.layers.request_parts import RequestRecorder
from amplifierd.sessions.layers.stoppable_calls import StoppableCalls, TurnSummary
from amplifierd.sessions.layers.usage import Usage
from amplifierd.store.protocol import Hold, Message
from amplifierd.store.record import Activity, SessionRecord

from .children import Children
from .kernel_session import KernelSession
from .prompt_queue import DOCUMENT, PromptQueue
from .runtime import Runtime
from .session_setup import SessionSetup
from .tree import SessionTree
from .turn import Turn
from .turn_result import TurnResult
from .unread_keys import UnreadKey

logger = logging.getLogger(__name__)


class ExecutionRunner:
    """Runs the turns of one session, one at a time, under the hold that it was given.

    `start` loads the modules; `cleanup` ends them and gives the hold back. Everything that happens is journaled.
    `layers` stand around the calls of the orchestrator, outside the runner's own.
    """

    def __init__(
        self,
        session_manager: Runtime,
        session_id: str,
        *,
        hold: Hold,
        record: SessionRecord,
        tree: SessionTree,
        setup: SessionSetup,
        parent: ExecutionRunner | None = None,
        parent_tool_call_id: str | None = None,
        self_delegation_depth: int = 0,
        layers: Sequence[CallLayer] = (),
    ) -> None:
        self.runtime, self.session_id, self.hold, self.record = session_manager, session_id, hold, record
        self.tree, self.setup, self.parent = tree, setup, parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.self_delegation_depth = self_delegation_depth
        self.permissions = self._find_permissions()
        self.repaired: RepairReport = RepairReport(session_id)
        self.unread_keys: tuple[UnreadKey, ...] = ()
        nesting = nesting_of(self.depth, parent_tool_call_id) if parent else NOT_NESTED
        self.journal = Journal(
            session_manager.store, hold, record, tree.events, session_manager.secrets, nesting=nesting
        )
        self.journal.on_lost = self._stop_now
        self.journal.correlation_id = parent.journal.correlation_id if parent else None
        longest = session_manager.settings.sessions.max_queue
        self.queue = PromptQueue(longest, self._announce_queued, self._store_queue)
        self.status = SessionStatus(
            session_id,
            self.journal,
            state=lambda: self.record.status,
            is_tainted=lambda: self.record.tainted,
            approvals=tree.approvals,
            queue=self.queue,
        )
        self.summary = TurnSummary()
        self.transcript = Transcript(
            session_manager.store,
            hold,
            agent=record.agent_name,
            hear=self.summary.hear,
            forget=self.summary.forget,
        )
        self.partial = PartialAnswer(self.journal.write, self.transcript)
        self.journal.on_piece = self.partial.hear
        self.children = Children(self)
        self.checkpoints: TurnCheckpoints | None = None
        put_parts = partial(session_manager.store.put_parts, hold)
        self.requests = RequestRecorder(
            self.journal.write_soon,
            put_parts,
            self.transcript.index,
            scrub=session_manager.secrets.scrubbed,
            find_injector=lambda text: self.kernel.session.coordinator.find_injector(text),
            take_back=lambda response: self.budget.take_back_response(response),
        )
        self.budget = BudgetLayer(
            tree.budget,
            self.journal.write_soon,
            agent=record.agent_name,
            used=Usage.from_json(record.usage),
            count=self.requests.count_tokens,
        )
        self.calls = StoppableCalls(self.partial.blocks, self._keep_partial)
        self.client_turns = ClientTurns()
        kept = (
            self.summary,
            self.requests,
            self.budget,
            Receipts(
                self.journal.write,
                self.journal.write_soon,
                put_parts,
                session_manager.secrets,
                self.budget.take_back_call,
            ),
        )
        own = (self.calls.gate, *kept, self.calls)
        self._layers: tuple[CallLayer, ...] = (*layers, self.client_turns, *own)
        self._kernel: KernelSession | None = None
        self._loading = asyncio.Lock()
        self.turn = 0
        self._running: Turn | None = None
        self._is_ended = False
        self._ends: asyncio.Event | None = None  # when someone waits for it
        tree.runners[session_id] = self
        if record.limits and not self.is_root:
            self._limit_tree()

    # --- life

    @property
    def working_dir(self) -> Path:
        return Path(self.record.working_dir)

    @property
    def is_root(self) -> bool:
        return self.record.root_id == self.session_id

    def _find_permissions(self) -> Permissions:
        """The level of the tree for its root; one of its own, within that of its parent, for any other."""
        if self.is_root:
            return self.tree.permissions
        outer = self.parent.permissions if self.parent is not None else self.tree.permissions
        return Permissions(self.record.permission_level, outer=outer)

    @property
    def activity(self) -> Activity | None:
        return self.status.activity

    @property
    def kernel(self) -> KernelSession:
        if self._kernel is None:
            raise RuntimeError(f"session {self.session_id} is not started")
        return self._kernel

    async def start(self, *, plan: Mapping[str, Any] | None = None, inherited: Sequence[Message] = ()) -> None:
        """Load the modules and put the history into the context.

        `plan` is the stored one if the caller has it; `inherited` is what a child takes over of its parent's history.

        Raises:
            RuntimeError: the orchestrator, the context or a required module cannot be loaded; nothing is left behind.
        """
        kernel = KernelSession(self)
        try:
            await kernel.load(await self.runtime.store.read_plan(self.session_id) if plan is None else plan)
        except BaseException:
            await kernel.close()
            raise
        await self.begin(kernel, inherited)

    async def begin(self, kernel: KernelSession, inherited: Sequence[Message] = ()) -> None:
        """Go on with a kernel session whose modules are loaded; if that fails they are ended."""
        checkpoints = (self.checkpoints,) if self.checkpoints is not None else ()
        try:
            await kernel.begin((*self._layers, *checkpoints), inherited)
            await self._take_up(kernel)
        except BaseException:
            await kernel.close()
            raise
        self._kernel = kernel
        self.status.is_loaded = True
        if not self.status.is_busy:
            self._rest()
        self.status.tell()

    async def _take_up(self, kernel: KernelSession) -> None:
        """Bring the record up to date with what was found when the modules were loaded."""
        self.turn = max(self.record.turn_count, last_turn(kernel.messages))
        changes = {**kernel.settled, **self._found_at_start(kernel)}
        if kernel.settled and self.is_root:
            changes["usage_tree"] = self.tree.budget.used.to_json()
        if changes:
            self.record = await self.runtime.store.update(self.hold, **changes)
        if changes.get("stale"):
            await self.journal.write("session:stale", {"build_id": self.setup.newer_build})

    async def load(self) -> KernelSession:
        """Load the modules if they were unloaded.

        Raises:
            RuntimeError: a module that the session cannot do without is broken.
        """
        async with self._loading:
            if self._kernel is None and not self.status.is_closed:
                await self.reload()
        return self.kernel

    async def unload(self) -> None:
        """End the modules of a session that has nothing to do; its next turn loads them again."""
        async with self._loading:
            if self.status.is_busy or self._kernel is None:
                return
            await self.close_kernel()
            self._rest()
        self.status.tell()

    async def close_kernel(self) -> None:
        kernel, self._kernel = self._kernel, None
        self.status.is_loaded = False
        if kernel is not None:
            await kernel.close()

    def _rest(self) -> None:
        """Let the modules be unloaded some time; those of a child end with its turn."""
        if self._kernel is None or self.parent is not None:
            self.runtime.loaded.forget(self)
        else:
            self.runtime.loaded.rests(self)

    def _found_at_start(self, kernel: KernelSession) -> dict[str, Any]:
        """Return what the record has to say differently, now that the modules are loaded."""
        build = self.setup.build
        warnings = [*kernel.load_failures, *self.setup.warnings]
        found: dict[str, Any] = {"load_warnings": warnings, "stale": self.setup.newer_build is not None}
        found["tainted"] = kernel.take_over_taint(self.record.tainted)
        if build is not None:
            found["build_id"] = build.build_id
        return {name: value for name, value in found.items() if value != getattr(self.record, name)}

    async def cleanup(self) -> None:
        """End the modules and give the hold back, unless it is that of the tree; a running turn is cancelled first."""
        self.status.is_closed = True
        if self.status.is_busy:
            await self.cancel(immediate=True)
            self._stop_now()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.status.wait_until_idle(), self.runtime.patience.whole_end_s)
        self.tree.runners.pop(self.session_id, None)
        try:
            async with self._loading:
                await self.close_kernel()
                self._rest()
            self.status.tell()
        finally:
            await self.tree.events.settle()
            if not self.is_root:
                await self.runtime.store.release(self.hold)
            self._is_ended = True
            if self._ends is not None:
                self._ends.set()

    async def stop(self) -> None:
        """Let a child's turn end at once, and wait until it is cleaned up."""
        self.status.is_closed = True
        await self.cancel(immediate=True)
        self._stop_now()
        if not self._is_ended:
            self._ends = self._ends or asyncio.Event()
            await self._ends.wait()

    # --- one turn

    async def execute(
        self,
        prompt: str,
        correlation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        images: Sequence[Mapping[str, Any]] = (),
        limit: asyncio.Timeout | None = None,
    ) -> TurnResult:
        """Run one turn. What goes wrong in it is in the result; the session stays usable.

        Raises:
            TurnTimeoutError: it was cancelled by `limit`, inside which the caller waits for it.
            ExecutionInProgressError: a turn is running.
            HoldLostError: another process has taken the session over.
        """
        async with self.working():
            self.turn += 1
            self._running = Turn(self, self.turn, correlation_id, limit)
            try:
                return await self._running.run(prompt, metadata, images)
            finally:
                self._running = None

    async def _announce_queued(self, position: int) -> None:
        await self.journal.write("execution:queued", {"position": position})

    async def _store_queue(self, prompts: Sequence[str]) -> None:
        await self.runtime.store.put_document(self.hold, DOCUMENT, list(prompts))

    @asynccontextmanager
    async def working(self, *, load: bool = True) -> AsyncIterator[None]:
        """Keep everything else away from the conversation meanwhile, with the modules loaded if they are needed."""
        async with self.status.working():
            self.runtime.loaded.works(self)
            try:
                async with self._loading:
                    if load and (self.transcript.is_behind or self._kernel is None or self._kernel.lacks_guard):
                        await self.reload()
                yield
            finally:
                self._rest()

    # --- between turns

    async def change(self, **changes: Any) -> SessionRecord:
        """Change fields of the record, and what follows from them."""
        self.record = await self.runtime.store.update(self.hold, **changes)
        if "limits" in changes:
            self._limit_tree()
        self.permissions.chosen = self.record.permission_level
        data = {"fields_changed": sorted(changes), "revision": self.record.revision}
        await self.journal.write("session:updated", data)
        return self.record

    async def note_taint(self) -> None:
        """Have every open session of the tree say that it is tainted: they share what they have read."""
        for runner in tuple(self.tree.runners.values()):
            if not runner.record.tainted:
                await runner.change(tainted=True)
                runner.status.tell()

    def forget_approval(self, key: str) -> None:
        """Have the guard ask again about what an answer stood for."""
        if self._kernel is not None:
            self._kernel.forget_approval(key)

    def _limit_tree(self) -> None:
        """Hold the tree to the limits of its root, and to those of its other sessions that are open."""
        tree = self.tree
        limits = Limits.read(self.record.limits) if self.is_root else tree.budget.limits
        for runner in tree.runners.values():
            limits = limits if runner.is_root else limits.within(Limits.read(runner.record.limits))
        tree.budget.limits = limits

    async def reload(self) -> None:
        """Load the modules anew, with the history as it is stored and repaired.

        So it is after something could not be stored: what the context has and what the transcript has may differ.
        """
        await self.close_kernel()
        self.record = await self.runtime.store.read(self.session_id)
        await self.start()

    # --- while a turn runs

    async def steer(self, text: str) -> dict[str, Any]:
        """Let a text reach the running turn before its next provider call.

        Raises:
            NothingToSteerError: no turn is running.
            SteeringUnsupportedError: the orchestrator takes no steering.
        """
        if not self.status.is_busy:
            raise NothingToSteerError(f"session {self.session_id} is not executing", hint="send it as a prompt")
        await self.kernel.steer(text)
        return {"correlation_id": self.journal.correlation_id, "delivered": True}

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]:
        """Ask the running turn to stop: a model at once, tools in flight when they are done.

        Asked twice, or for an immediate end, it stops those as well.
        """
        if not self.status.is_busy or self._kernel is None:
            return {"state": "none", "running_tools": []}
        immediate = immediate or self.status.is_cancelling
        self.status.is_cancelling = True
        running = self._kernel.running_tools()
        await self._kernel.session.coordinator.request_cancel(immediate=immediate)
        below = {self.session_id, *self.children.running_ids()}
        self.tree.approvals.deny_all_pending("the turn was cancelled", session_ids=below)
        for runner in (self.tree.runners[each] for each in below if each in self.tree.runners):
            runner.calls.stop() if immediate else runner.calls.finish()
        is_model_alone = not running and len(below) == 1
        if self._running is not None and (immediate or is_model_alone):
            self._running.cancel_soon(is_model_alone=is_model_alone)
        self.status.tell()
        return {"state": "immediate" if immediate else "graceful", "running_tools": running}

    async def _keep_partial(self, text: str) -> None:
        """Store what was said of an answer that was stopped: the person has read it, and the model goes on from it."""
        message = {"role": "assistant", "content": text, "metadata": {"partial": True}}
        with TaskBoundary(logger, "the stopped answer of session %s is not kept: %s", self.session_id):
            await settle(self.kernel.session.coordinator.get("context").add_message(message))

    def _stop_now(self) -> None:
        """Cancel the running turn without waiting for its modules: the session is closed, or another process has it."""
        if self._running is not None:
            self._running.cancel_now()
