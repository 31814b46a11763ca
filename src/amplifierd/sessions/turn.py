"""One turn of a session: the prompt is saved, the kernel runs it, and how it ended is written down."""

from __future__ import annotations

import asyncio
import logging
import traceback
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from amplifier_core.boundary import TaskBoundary
from amplifier_core.exceptions import describe
from amplifier_system.tasks import read_outcome, run_to_end, start_task
from amplifierd.exceptions import (
    BudgetExhaustedError,
    CheckpointError,
    HoldLostError,
    MemberFencedError,
    SessionError,
    StoreUnavailableError,
    TurnTimeoutError,
)
from amplifierd.problems import INTERNAL, find_problem, problem_document
from amplifierd.sessions.layers.budget_layer import FINISH_REASON
from amplifierd.sessions.layers.checkpointing import AFTER, BEFORE, News
from amplifierd.sessions.layers.receipts import NOT_RUN, UNKNOWN
from amplifierd.store.record import now

from .turn_result import TurnResult, TurnStatus

if TYPE_CHECKING:
    from amplifierd.checkpoints import Checkpoint

    from .runner import ExecutionRunner

logger = logging.getLogger(__name__)

_LONGEST_BEGINNING = 100

Taken: TypeAlias = "Checkpoint | CheckpointError | None"
"""A checkpoint, why it could not be taken, or None where none are taken."""


class Turn:
    """Runs one prompt with the parts of its runner, which calls `run` once."""

    def __init__(
        self, runner: ExecutionRunner, number: int, correlation_id: str | None, limit: asyncio.Timeout | None = None
    ) -> None:
        self.number = number
        self.correlation_id = correlation_id or f"prompt_{runner.session_id}_{number}"
        self.turn_id = uuid.uuid4().hex
        self._runner, self._limit = runner, limit
        self._session_id = runner.session_id
        self._patience = runner.runtime.patience
        self._task: asyncio.Task[str] | None = None
        self._prompt = ""
        self._lost: SessionError | None = None
        self._leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(
        self, prompt: str, metadata: Mapping[str, Any] | None, images: Sequence[Mapping[str, Any]]
    ) -> TurnResult:
        runner, self._prompt = self._runner, prompt
        runner.journal.correlation_id = runner.transcript.correlation_id = self.correlation_id
        runner.transcript.turn = runner.requests.turn = self.number
        runner.summary.begin()
        runner.calls.begin()
        if runner.parent is None:  # a child runs for one turn, and its parent may have been asked to stop already
            runner.kernel.reset_cancellation()
        status, response, error = await self._attempt(prompt, metadata, images)
        result = await run_to_end(self._end(status, response, error))
        if isinstance(error, HoldLostError | TurnTimeoutError | asyncio.CancelledError):
            raise error
        if self._lost is not None:  # its new holder tells how the turn ended
            raise self._lost
        return result

    def cancel_soon(self, *, is_model_alone: bool) -> None:
        """Cancel the turn when its modules, which were told to stop at once, have not done so in time."""
        if self._task is not None:
            patience_s = self._patience.model_s if is_model_alone else self._patience.module_s
            asyncio.get_running_loop().call_later(patience_s, self._cancel_or_leave)

    def _cancel_or_leave(self) -> None:
        """Cancel the turn; modules that swallow even that are left behind in the end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            asyncio.get_running_loop().call_later(self._patience.last_s, self._leave)

    def _leave(self, task: asyncio.Task[str] | None = None) -> None:
        """Wait no longer for the task: it is done, or does not stop."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    def cancel_now(self) -> None:
        """Cancel the turn without waiting for its modules."""
        if self._task is not None:
            with suppress(RuntimeError):  # the loop is closing
                self._task.cancel()

    # --- beginning

    async def _attempt(
        self, prompt: str, metadata: Mapping[str, Any] | None, images: Sequence[Mapping[str, Any]]
    ) -> tuple[TurnStatus, str, BaseException | None]:
        """Save the prompt, let the kernel run the turn, and say how that ended."""
        runner = self._runner
        try:
            await run_to_end(self._save_prompt(prompt, metadata))
            before = await self._take_checkpoint(BEFORE)
            await self._prepare(prompt, images)
            await runner.journal.write_all_soon(self._news(before))
        except asyncio.CancelledError as error:
            return self._cancelled(error)
        except SessionError:
            runner.transcript.is_behind = True
            raise
        try:
            async with runner.budget.turn():
                response = "" if runner.kernel.is_cancelled else await self._run_kernel(prompt)
        except BudgetExhaustedError as error:
            return "failed", "", error
        except asyncio.CancelledError as error:
            if runner.journal.lost is not None:
                return "failed", "", runner.journal.lost
            own = asyncio.current_task()
            return self._cancelled(error) if own is not None and own.cancelling() else ("cancelled", "", None)
        except Exception as error:  # noqa: BLE001 - whatever modules raise ends the turn, not the session
            self._log_failure(error)
            if runner.journal.lost is not None:
                return "failed", "", runner.journal.lost
            return ("cancelled", "", None) if runner.kernel.is_cancelled else ("failed", "", error)
        return ("cancelled" if runner.kernel.is_cancelled else "completed"), response, None

    def _cancelled(self, error: asyncio.CancelledError) -> tuple[TurnStatus, str, BaseException]:
        """Say how a turn ended for which no one waits any more: its time was up, or its caller left."""
        if self._limit is None or not self._limit.expired():
            return "cancelled", "", error
        late = TurnTimeoutError(
            f"turn {self.number} of session {self._session_id} took longer than it may",
            hint="allow it more time: timeout_seconds of the request, or the setting sessions.turn_timeout_seconds",
        )
        return "failed", "", late

    def _log_failure(self, error: Exception) -> None:
        """Log why a turn failed; of an error that clients are told nothing about, everything."""
        is_told = find_problem(error) is not INTERNAL
        text = describe(error) if is_told else "".join(traceback.format_exception(error))
        scrubbed = self._runner.runtime.secrets.scrubbed(text)
        logger.warning("turn %s of session %s failed: %s", self.correlation_id, self._session_id, scrubbed)

    async def _save_prompt(self, prompt: str, metadata: Mapping[str, Any] | None) -> None:
        runner = self._runner
        line = await runner.transcript.add_prompt(prompt, metadata)
        saved = {"message_id": line["id"], "role": "user", "content": prompt, "turn": self.number}
        started = {"message_id": None, "role": "assistant", "content": None, "turn": self.number}
        said = [("user_message:saved", saved), ("assistant_message:start", started)]
        await runner.journal.begin_turn(self.turn_id, [*runner.status.news(), *said])
        await runner.queue.save()  # now that the transcript has the prompt

    async def _prepare(self, prompt: str, images: Sequence[Mapping[str, Any]]) -> None:
        """Give the context what comes before the prompt."""
        if self._runner.record.takeover is not None:
            await self._runner.change(takeover=None)
        await self._runner.kernel.add_mentioned(prompt, self.number)
        if images:
            await self._runner.kernel.add_images(images)

    async def _run_kernel(self, prompt: str) -> str:
        """Run the turn in a task of its own, which can be cancelled when nothing else helps."""
        task = self._task = start_task(self._runner.kernel.session.execute(prompt))
        task.add_done_callback(self._leave)
        try:
            await self._leaving
        except asyncio.CancelledError:
            if not task.done():
                await run_to_end(self._stop(task))
            raise
        if not task.done():
            self._leave_behind(task)
            raise asyncio.CancelledError
        return task.result()

    async def _stop(self, task: asyncio.Task[str]) -> None:
        """Stop a turn that no one waits for any more; orchestrators answer every call before they let go."""
        await self._runner.cancel(immediate=True)  # tools and models stop by themselves, and what they did is kept
        await asyncio.wait({task}, timeout=self._patience.model_s)
        task.cancel()
        _, running = await asyncio.wait({task}, timeout=self._patience.module_s)
        if running:
            self._leave_behind(task)

    def _leave_behind(self, task: asyncio.Task[str]) -> None:
        """Go on without modules that do not stop; what they still do reaches nothing of the session any more."""
        logger.error("a module of session %s does not stop when its task is cancelled", self._session_id)
        task.add_done_callback(read_outcome)
        self._runner.kernel.cut_off()
        self._runner.transcript.is_behind = True  # the next turn loads the modules anew

    # --- end

    async def _end(self, status: TurnStatus, response: str, error: BaseException | None) -> TurnResult:
        """Write down everything that the turn left; it happens whatever becomes of the one who waits for it."""
        runner = self._runner
        await runner.partial.settle()
        if status != "completed" and runner.journal.lost is None:
            await self._answer_open_calls()
        after = await self._take_checkpoint(AFTER)
        await runner.tree.events.settle()  # what cannot be stored is counted no longer
        result = TurnResult(
            response=response or runner.calls.kept,
            status=status,
            session_id=self._session_id,
            turn=self.number,
            correlation_id=self.correlation_id,
            finish_reason=FINISH_REASON if runner.budget.exhausted else runner.summary.finish_reason,
            usage=runner.budget.turn_total.to_json(),
            tool_calls=runner.summary.tool_calls,
            error=None if error is None or isinstance(error, asyncio.CancelledError) else self._problem(error),
        )
        await self._conclude(result, self._news(after))
        return result

    def _problem(self, error: BaseException) -> dict[str, Any]:
        document = problem_document(error, request_id=self.correlation_id)
        return dict(self._runner.runtime.secrets.scrubbed(document))

    async def _answer_open_calls(self) -> None:
        """Give every call a result that a broken turn left without one: no provider takes such a conversation."""
        context = self._runner.kernel.session.coordinator.get("context")
        for call, is_begun in self._runner.summary.unanswered():
            content = UNKNOWN if is_begun else NOT_RUN
            message = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
            with TaskBoundary(logger, "call %s of session %s stays without a result: %s", call.id, self._session_id):
                await context.add_message(message)

    async def _take_checkpoint(self, label: str) -> Taken:
        checkpoints = self._runner.checkpoints
        if checkpoints is None or self._runner.journal.lost is not None:
            return None
        return await checkpoints.take(self.number, label)

    def _news(self, taken: Taken) -> list[News]:
        checkpoints = self._runner.checkpoints
        return [] if taken is None or checkpoints is None else checkpoints.news(taken)

    async def _conclude(self, result: TurnResult, said: list[News]) -> None:
        """Write down how the turn ended, after what is `said` already. Where that fails, the result still reaches
        the caller."""
        runner = self._runner
        runner.kernel.end_turn()
        done: dict[str, Any] = {"status": result.status, "usage": result.usage, "finish_reason": result.finish_reason}
        done |= {"turn": result.turn, "response": result.response or None}
        if result.error is not None:
            done["error"] = result.error
        if result.status == "completed":
            message = {"message_id": runner.transcript.last_id, "role": "assistant", "turn": result.turn}
            said.append(("assistant_message:complete", {**message, "content": result.response}))
        said.append(("execution:done", done))
        if runner.parent is None and not runner.is_root:  # nothing above it counts
            try:
                await runner.tree.keep_usage()
            except (SessionError, OSError) as failure:  # it is counted when the tree is opened next
                logger.warning("the tree of session %s is not counted yet: %s", self._session_id, failure)
        try:
            runner.record = await runner.journal.end_turn(self.turn_id, said, self._counted(result))
        except (HoldLostError, MemberFencedError) as lost:
            self._lost = lost
            logger.warning("session %s was taken over during turn %d", self._session_id, result.turn)
        except StoreUnavailableError as failure:
            self._lost = failure
            logger.warning("turn %d of session %s is left to be ended: %s", result.turn, self._session_id, failure)
        except (SessionError, OSError) as failure:
            logger.error("turn %d of session %s ends unstored: %s", result.turn, self._session_id, failure)  # noqa: TRY400 - an operator can act on the text alone

    def _beginning(self) -> str:
        """Return the beginning of the prompt, in one line."""
        line = " ".join(str(self._runner.runtime.secrets.scrubbed(self._prompt)).split())
        return line if len(line) <= _LONGEST_BEGINNING else f"{line[: _LONGEST_BEGINNING - 1]}…"

    def _counted(self, result: TurnResult) -> dict[str, Any]:
        """Return what the turn changes in the record."""
        runner = self._runner
        used = runner.budget.used
        return {
            "turn_count": result.turn,
            "message_count": runner.transcript.count,
            "agent_invocations": runner.children.invocations,
            "token_usage": used.tokens.to_json(),
            "usage": used.to_json(),
            "usage_seq": runner.tree.events.last_sequence,
            "model": next(reversed([*runner.budget.turn_used.by_model]), runner.record.model),
            "last_activity_at": now(),
            "last_error": result.error,
            **({} if runner.record.first_prompt else {"first_prompt": self._beginning()}),
            **({"usage_tree": runner.tree.budget.used.to_json()} if runner.is_root else {}),
        }
