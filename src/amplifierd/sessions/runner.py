"""The runner of one session: a stored plan becomes a kernel session, prompts become turns, and all of it is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from amplifier_core.boundary import TaskBoundary
from amplifier_core.exceptions import describe
from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import (
    BudgetExhaustedError,
    ExecutionInProgressError,
    HoldLostError,
    NothingToSteerError,
    SessionError,
    SessionStateError,
)
from amplifierd.limits import Limits
from amplifierd.problems import problem_document
from amplifierd.session_store.protocol import Hold, Message
from amplifierd.session_store.record import Activity, SessionRecord, now

from .budget_layer import FINISH_REASON, BudgetLayer
from .calls import CallLayer
from .checkpointing import AFTER, BEFORE, TurnCheckpoints
from .children import Children
from .context_messages import DOCUMENT, for_other_agent
from .equipment import Equipment
from .interruption import RepairReport
from .journal import Journal
from .kernel_session import KernelSession
from .partial_answer import PartialAnswer
from .receipts import NOT_RUN, UNKNOWN, Receipts
from .request_parts import RequestRecorder
from .runtime import Runtime
from .transcript import Transcript, last_turn
from .tree import SessionTree
from .turn_result import TurnResult, TurnStatus
from .turn_summary import TurnSummary
from .usage import Usage

logger = logging.getLogger(__name__)

_PATIENCE_S = 10.0
"""How long a module that was told to stop at once may take before its task is cancelled."""

_MODEL_PATIENCE_S = 0.5
"""The same while no tool runs: what is waited for then is a model, and nothing is left half done."""

_LONGEST_END_S = 3 * _PATIENCE_S
"""How long a cancelled turn may take until all of it is written down."""


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
        equipment: Equipment,
        parent: ExecutionRunner | None = None,
        parent_tool_call_id: str | None = None,
        layers: Sequence[CallLayer] = (),
    ) -> None:
        self.runtime, self.session_id, self.hold, self.record = session_manager, session_id, hold, record
        self.tree, self.equipment, self.parent = tree, equipment, parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.repaired: RepairReport = RepairReport(session_id)
        self.journal = Journal(session_manager.store, hold, record, tree.events, session_manager.secrets)
        self.journal.on_lost = self._stop_now
        self.journal.correlation_id = parent.journal.correlation_id if parent else None
        if parent is not None:
            self.journal.nesting = {"nesting_depth": self.depth, "parent_tool_call_id": parent_tool_call_id}
        self.summary = TurnSummary()
        self.transcript = Transcript(session_manager.store, hold, agent=record.agent_name, hear=self.summary.hear)
        self.budget = BudgetLayer(
            tree.budget, self.journal.write, agent=record.agent_name, used=Usage.from_json(record.usage)
        )
        self.partial = PartialAnswer(self.journal.write, self.transcript)
        self.children = Children(self)
        self.checkpoints: TurnCheckpoints | None = None
        self.requests = RequestRecorder(
            self.journal.write,
            partial(session_manager.store.put_parts, hold),
            self.transcript.index,
            scrub=session_manager.secrets.scrubbed,
            find_injector=lambda text: self.kernel.session.coordinator.find_injector(text),
        )
        own = (self.summary, self.requests, self.budget, Receipts(self.journal.write))
        self._layers: tuple[CallLayer, ...] = (*layers, *own)
        self._kernel: KernelSession | None = None
        self._turn = 0
        self._task: asyncio.Task[str] | None = None
        self._is_busy = self._is_cancelling = self._is_closed = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_ended = asyncio.Event()
        tree.runners[session_id] = self

    # --- life

    @property
    def working_dir(self) -> Path:
        return Path(self.record.working_dir)

    @property
    def _is_root(self) -> bool:
        return self.record.root_id == self.session_id

    @property
    def activity(self) -> Activity:
        if not self._is_busy:
            return "idle"
        if self._is_cancelling:
            return "cancelling"
        waits = any(approval.session_id == self.session_id for approval in self.tree.approvals.pending())
        return "waiting_approval" if waits else "executing"

    @property
    def kernel(self) -> KernelSession:
        if self._kernel is None:
            raise RuntimeError(f"session {self.session_id} is not started")
        return self._kernel

    async def start(self, *, inherited: Sequence[Message] = ()) -> None:
        """Load the modules and put the history into the context; `inherited` is what a child is told of its parent's.

        Raises:
            RuntimeError: the orchestrator, the context or a required module cannot be loaded; nothing is left behind.
        """
        kernel = KernelSession(self)
        try:
            checkpoints = (self.checkpoints,) if self.checkpoints is not None else ()
            await kernel.start((*self._layers, *checkpoints), inherited)
        except BaseException:
            await kernel.close()
            raise
        self._kernel = kernel
        self._turn = max(self.record.turn_count, last_turn(kernel.messages))
        changes = {**kernel.settled, **self._found_at_start(kernel)}
        if kernel.settled and self._is_root:
            changes["usage_tree"] = self.tree.budget.used.to_json()
        if changes:
            self.record = await self.runtime.store.update(self.hold, **changes)
        if changes.get("stale"):
            await self.journal.write("session:stale", {"build_id": self.equipment.newer_build})

    def _found_at_start(self, kernel: KernelSession) -> dict[str, Any]:
        """Return what the record has to say differently, now that the modules are loaded."""
        build, warning = self.equipment.build, self.equipment.warning
        warnings = [*kernel.load_failures, *([{"code": "build-changed", "message": warning}] if warning else [])]
        found: dict[str, Any] = {"load_warnings": warnings, "stale": self.equipment.newer_build is not None}
        if build is not None:
            found["build_id"] = build.build_id
        return {name: value for name, value in found.items() if value != getattr(self.record, name)}

    async def cleanup(self) -> None:
        """End the modules and give the hold back; a running turn is cancelled first."""
        self._is_closed = True
        if self._is_busy:
            await self.cancel(immediate=True)
            self._stop_now()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), _LONGEST_END_S)
        self.tree.runners.pop(self.session_id, None)
        try:
            if self._kernel is not None:
                await self._kernel.close()
        finally:
            await self.runtime.store.release(self.hold)
            self._is_ended.set()

    async def stop(self) -> None:
        """Let a child's turn end at once, and wait until whoever runs it has cleaned up."""
        self._is_closed = True
        await self.cancel(immediate=True)
        self._stop_now()
        await self._is_ended.wait()

    # --- one turn

    async def execute(
        self,
        prompt: str,
        correlation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        images: Sequence[Mapping[str, Any]] = (),
    ) -> TurnResult:
        """Run one turn. What goes wrong in it is in the result; the session stays usable.

        Raises:
            ExecutionInProgressError: a turn is running.
            HoldLostError: another process has taken the session over.
        """
        with self._working():
            if self.transcript.is_behind or self._kernel is None:
                await self._reload()
            return await self._run_turn(prompt, correlation_id, metadata, images)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Keep everything else away from the conversation meanwhile."""
        if self._is_closed:
            raise closed(self.session_id)
        if self._is_busy:
            raise ExecutionInProgressError(
                f"session {self.session_id} is executing a turn", hint="wait for it, queue the prompt, or cancel it"
            )
        self._is_busy = True
        self._is_idle.clear()
        try:
            yield
        finally:
            self._is_busy = self._is_cancelling = False
            self._task = None
            self._is_idle.set()

    async def _run_turn(
        self,
        prompt: str,
        correlation_id: str | None,
        metadata: Mapping[str, Any] | None,
        images: Sequence[Mapping[str, Any]],
    ) -> TurnResult:
        self._turn += 1
        correlation_id = correlation_id or f"prompt_{self.session_id}_{self._turn}"
        self.journal.correlation_id = self.transcript.correlation_id = correlation_id
        self.transcript.turn = self.requests.turn = self._turn
        self.summary.begin()
        if self.parent is None:  # a child runs for one turn, and its parent may have been asked to stop already
            self.kernel.reset_cancellation()
        status, response, error = await self._attempt(prompt, metadata, images)
        result = await run_to_end(self._end_turn(status, response, error))
        if isinstance(error, HoldLostError | asyncio.CancelledError):
            raise error
        return result

    async def _end_turn(self, status: TurnStatus, response: str, error: BaseException | None) -> TurnResult:
        """Write down everything that a turn left; it happens whatever becomes of the one who waits for it."""
        await self.partial.settle()
        if status != "completed" and self.journal.lost is None:
            await self._answer_open_calls()
        await self._take_checkpoint(AFTER)
        result = TurnResult(
            response=response,
            status=status,
            session_id=self.session_id,
            turn=self._turn,
            correlation_id=self.journal.correlation_id or "",
            finish_reason=FINISH_REASON if self.budget.exhausted else self.summary.finish_reason,
            usage=self.budget.turn_total.to_json(),
            tool_calls=self.summary.tool_calls,
            error=self.runtime.secrets.scrubbed(problem_document(error)) if error is not None else None,
        )
        await self._conclude(result)
        return result

    async def _answer_open_calls(self) -> None:
        """Give every call a result that a broken turn left without one: no provider takes such a conversation."""
        context = self.kernel.session.coordinator.get("context")
        for call, is_begun in self.summary.unanswered():
            content = UNKNOWN if is_begun else NOT_RUN
            message = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
            with TaskBoundary(logger, "call %s of session %s stays without a result: %s", call.id, self.session_id):
                await context.add_message(message)

    async def _take_checkpoint(self, label: str) -> None:
        if self.checkpoints is None or self.journal.lost is not None:
            return
        try:
            await self.checkpoints.take(self._turn, label)
        except HoldLostError:
            raise
        except SessionError as error:
            logger.warning("a checkpoint of turn %d of session %s is not told: %s", self._turn, self.session_id, error)

    async def _save_prompt(self, prompt: str, metadata: Mapping[str, Any] | None) -> None:
        line = await self.transcript.add_prompt(prompt, metadata)
        saved = {"message_id": line["id"], "role": "user", "content": prompt, "turn": self._turn}
        await self.journal.write("user_message:saved", saved)
        started = {"message_id": None, "role": "assistant", "content": None, "turn": self._turn}
        await self.journal.write("assistant_message:start", started)

    async def _prepare(self, prompt: str, images: Sequence[Mapping[str, Any]]) -> None:
        """Give the context what comes before the prompt, and keep the working directory as it is."""
        await self.kernel.add_mentioned(prompt, self._turn)
        if images:
            await self.kernel.add_images(images)
        await self._take_checkpoint(BEFORE)

    async def _attempt(
        self, prompt: str, metadata: Mapping[str, Any] | None, images: Sequence[Mapping[str, Any]]
    ) -> tuple[TurnStatus, str, BaseException | None]:
        """Save the prompt, let the kernel run the turn, and say how that ended."""
        try:
            await run_to_end(self._save_prompt(prompt, metadata))
            await self._prepare(prompt, images)
        except asyncio.CancelledError as error:
            return "cancelled", "", error
        except SessionError:
            self.transcript.is_behind = True
            raise
        try:
            async with self.budget.turn():
                response = "" if self.kernel.is_cancelled else await self._run_kernel(prompt)
        except BudgetExhaustedError as error:
            return "failed", "", error
        except asyncio.CancelledError as error:
            if self.journal.lost is not None:
                return "failed", "", self.journal.lost
            own = asyncio.current_task()
            return "cancelled", "", error if own is not None and own.cancelling() else None
        except Exception as error:  # noqa: BLE001 - whatever modules raise ends the turn, not the session
            described = self.runtime.secrets.scrubbed(describe(error))
            logger.warning("turn %d of session %s failed: %s", self._turn, self.session_id, described)
            if self.journal.lost is not None:
                return "failed", "", self.journal.lost
            return ("cancelled", "", None) if self.kernel.is_cancelled else ("failed", "", error)
        return ("cancelled" if self.kernel.is_cancelled else "completed"), response, None

    async def _run_kernel(self, prompt: str) -> str:
        """Run the turn in a task of its own, which can be cancelled when nothing else helps."""
        task = self._task = asyncio.create_task(self.kernel.session.execute(prompt))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await run_to_end(self._stop(task))
            raise

    async def _stop(self, task: asyncio.Task[str]) -> None:
        """Stop a turn that no one waits for any more; orchestrators answer every call before they let go."""
        await self.cancel(immediate=True)
        task.cancel()
        _, running = await asyncio.wait({task}, timeout=_PATIENCE_S)
        if running:
            logger.error("the orchestrator of session %s does not stop when its task is cancelled", self.session_id)

    async def _conclude(self, result: TurnResult) -> None:
        """Write down how a turn ended. Where that fails, the result still reaches the caller."""
        self.kernel.end_turn()
        done: dict[str, Any] = {"status": result.status, "usage": result.usage, "finish_reason": result.finish_reason}
        done |= {"turn": result.turn, "response": result.response or None}
        if result.error is not None:
            done["error"] = result.error
        try:
            if result.status == "completed":
                message = {"message_id": self.transcript.last_id, "role": "assistant", "turn": result.turn}
                await self.journal.write("assistant_message:complete", {**message, "content": result.response})
            await self.journal.write("execution:done", done, lasting=True)
            self.record = await self.runtime.store.update(self.hold, **self._counted(result))
        except HoldLostError:
            logger.warning("session %s was taken over during turn %d", self.session_id, result.turn)
        except (SessionError, OSError) as failure:
            logger.error("the end of turn %d of session %s is not stored: %s", result.turn, self.session_id, failure)  # noqa: TRY400 - an operator can act on the text alone

    def _counted(self, result: TurnResult) -> dict[str, Any]:
        """Return what a turn changes in the record."""
        used = self.budget.used
        tree = {"usage_tree": self.tree.budget.used.to_json()} if self._is_root else {}
        return {
            "turn_count": result.turn,
            "message_count": self.record.message_count + self.transcript.take_written(),
            "agent_invocations": self.children.invocations,
            "token_usage": used.tokens.to_json(),
            "usage": used.to_json(),
            "usage_seq": self.tree.events.last_sequence,
            "model": next(reversed([*self.budget.turn_used.by_model]), self.record.model),
            "last_activity_at": now(),
            "last_error": result.error,
            **tree,
        }

    # --- between turns

    async def change(self, **changes: Any) -> SessionRecord:
        """Change fields of the record, and what follows from them."""
        self.record = await self.runtime.store.update(self.hold, **changes)
        if "limits" in changes:
            self.tree.budget.limits = Limits.read(self.record.limits)
        told = {"fields_changed": sorted(changes), "revision": self.record.revision}
        await self.journal.write("session:updated", told)
        return self.record

    async def append_message(self, message: Message) -> Message:
        """Add a message to transcript and context without running a turn."""
        with self._working():
            self.transcript.turn = self._turn
            line = await self.transcript.add(message, lasting=True)
            await self.kernel.add_to_context(message)
            await self.change(message_count=self.record.message_count + self.transcript.take_written())
            return line

    async def rewrite(self, messages: list[Message], turn: int) -> SessionRecord:
        """Put a shorter transcript in place of the whole one; the context is built from it again."""
        with self._working():
            await self.runtime.store.replace_messages(self.hold, messages)
            self._turn = turn
            self.transcript.install(messages)
            await self.kernel.rebuild(messages, turn)
            self.record = await self.runtime.store.update(self.hold, message_count=len(messages), turn_count=turn)
            await self.journal.write("message:deleted", {"turn": turn, "message_count": len(messages)})
            return self.record

    async def switch(
        self, equipment: Equipment, plan: Mapping[str, Any], changes: Mapping[str, Any], told: Mapping[str, Any]
    ) -> SessionRecord:
        """Go on with another plan: the modules are ended, and loaded anew with the whole history."""
        with self._working():
            told_so_far = await self.runtime.store.read_document(self.session_id, DOCUMENT)
            await self.runtime.store.switch_plan(self.hold, plan, {DOCUMENT: for_other_agent(told_so_far)}, **changes)
            self.equipment = equipment
            await self.journal.write("session:profile_changed", told)
            await self._reload()
            return self.record

    async def move(self, working_dir: Path) -> SessionRecord:
        """Go on in another directory: the modules are loaded anew, with the whole history."""
        with self._working():
            await self.change(working_dir=str(working_dir))
            places = replace(self.equipment.places, working_dir=working_dir)
            self.equipment = replace(self.equipment, places=places)
            await self._reload()
            return self.record

    async def _reload(self) -> None:
        """Load the modules anew, with the history as it is stored and repaired.

        So it is after something could not be stored: what the context has and what the transcript has may differ.
        """
        if self._kernel is not None:
            await self._kernel.close()
            self._kernel = None
        self.record = await self.runtime.store.read(self.session_id)
        await self.start()

    # --- while a turn runs

    async def steer(self, text: str) -> dict[str, Any]:
        """Let a text reach the running turn before its next provider call.

        Raises:
            NothingToSteerError: no turn is running.
            SteeringUnsupportedError: the orchestrator takes no steering.
        """
        if not self._is_busy:
            raise NothingToSteerError(f"session {self.session_id} is not executing", hint="send it as a prompt")
        await self.kernel.steer(text)
        return {"correlation_id": self.journal.correlation_id, "delivered": True}

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]:
        """Ask the running turn to stop: after the tools in flight, or at once, as it does when it is asked twice."""
        if not self._is_busy or self._kernel is None:
            return {"state": "none", "running_tools": []}
        immediate = immediate or self._is_cancelling
        self._is_cancelling = True
        running = self._kernel.running_tools()
        await self._kernel.session.coordinator.request_cancel(immediate=immediate)
        below = {self.session_id, *self.children.running_ids()}
        self.tree.approvals.deny_all_pending("the turn was cancelled", session_ids=below)
        if immediate and self._task is not None:
            patience_s = _PATIENCE_S if running or self.children.running_ids() else _MODEL_PATIENCE_S
            asyncio.get_running_loop().call_later(patience_s, self._task.cancel)
        return {"state": "immediate" if immediate else "graceful", "running_tools": running}

    def _stop_now(self) -> None:
        """Cancel the running turn without waiting for its modules: the session is closed, or another process has it."""
        if self._task is not None:
            with suppress(RuntimeError):  # the loop is closing
                self._task.cancel()


def closed(session_id: str) -> SessionStateError:
    return SessionStateError(f"session {session_id} is closed", hint="open it again with sessions.resume")
