"""Running the tool calls of one response: hooks before and after, one answer for each call, whatever happens."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import Tool, ToolResult
from amplifier_core.boundary import Boundary, at_once
from amplifier_core.events import TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_core.exceptions import describe
from amplifier_core.utils.tool_messages import Call
from amplifier_kit.approval import ApprovalGate, ask_gate, deferring, find_gate, own_copy, running_approved
from amplifier_kit.messages.conversation import Content, as_tool_result, replaced_content, result_content
from amplifier_kit.types import DISPLAY_ARGUMENTS, Coordinator, EventData, JsonObject
from amplifier_system.tasks import start_task

from .hook_points import NO_REASON, Decision, HookPoints, Injection
from .turn_task import TurnTask

logger = logging.getLogger(__name__)


class Cancellation:
    """A cancellation token, or what there is of one."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._token = token = getattr(coordinator, "cancellation", None)
        self._register_start = getattr(token, "register_tool_start", None)
        self._register_end = getattr(token, "register_tool_complete", None)

    @property
    def is_requested(self) -> bool:
        """True if the turn is to stop when its running tools are done."""
        return getattr(self._token, "is_cancelled", False) is True

    @property
    def is_immediate(self) -> bool:
        """True if the turn is to stop now."""
        return getattr(self._token, "is_immediate", False) is True

    @property
    def state(self) -> str:
        """How the turn is cancelled; a cancelled task leaves no choice."""
        state = getattr(self._token, "state", "immediate") if self.is_requested else "immediate"
        return str(getattr(state, "value", state))

    def register_tool(self, call_id: str, name: str) -> None:
        """Have a call counted as running, and shown under `name`."""
        if self._register_start is not None:
            at_once(self._register_start(call_id, name))

    def unregister_tool(self, call_id: str) -> None:
        if self._register_end is not None:
            at_once(self._register_end(call_id))

    async def trigger_callbacks(self) -> None:
        """Announce that the turn is cancelled."""
        trigger = getattr(self._token, "trigger_callbacks", None)
        if trigger is not None:
            with Boundary(logger, "a cancellation callback failed: %s", level=logging.ERROR):
                await trigger()


@dataclass(slots=True)
class Outcome:
    """What became of one call; `content` stays None when the tool did not get to its end."""

    call: Call
    group_id: str
    tool_name: str = field(init=False)
    arguments: JsonObject = field(init=False)
    content: Content | None = None
    injections: list[Injection] = field(default_factory=list)
    started_s: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.tool_name, self.arguments = self.call.name, self.call.arguments


_OLDER_DISPATCH = "_tool_dispatch_context"  # names a running call as well, one at a time

Dispatches = dict["asyncio.Task[Any] | None", dict[str, str]]


class ToolCalls:
    """Runs batches of calls for one turn. Loops override the texts and steps in which they differ.

    A step answers a call by setting the content of its outcome, before it announces it: what a tool has done counts
    even if the telling is interrupted.
    """

    def __init__(
        self,
        task: TurnTask,
        cancellation: Cancellation,
        points: HookPoints,
        tools: Mapping[str, Tool],
        coordinator: Coordinator,
    ) -> None:
        self.points = points
        self.tools = tools
        self.coordinator = coordinator
        self._task = task
        self._cancellation = cancellation
        self._group_ids = uuid_series()

    def new_batch(self, calls: list[Call]) -> list[Outcome]:
        """Return the outcomes of one response's calls, to be filled in."""
        group_id = next(self._group_ids)
        return [Outcome(call, group_id) for call in calls]

    async def run(
        self,
        batch: list[Outcome],
        *,
        parallel: bool = True,
        limit: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> BaseException | None:
        """Fill in the outcomes; returns what ended the batch early, for the caller to raise.

        In parallel at most `limit` run at once (0: all). One after another, `should_stop` is asked after each. This is
        the part of a round that can be cancelled: every call that still runs is then cancelled too, and waited for.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            with self._task.interruptible:
                if parallel and len(batch) > 1:
                    places = asyncio.Semaphore(limit or len(batch))
                    tasks += [start_task(self._run_in_turn(outcome, places)) for outcome in batch]
                    await asyncio.gather(*tasks)
                else:
                    for outcome in batch:
                        await self._run_one(outcome)
                        if should_stop():
                            break
        except GeneratorExit:  # the turn is being closed and may not wait any more
            raise
        except BaseException as exc:  # noqa: BLE001 - handed back, to be raised once every call has its answer
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return exc
        return None

    async def _run_in_turn(self, outcome: Outcome, places: asyncio.Semaphore) -> None:
        async with places:
            await self._run_one(outcome)

    async def _run_one(self, outcome: Outcome) -> None:
        call = outcome.call
        try:
            self._cancellation.register_tool(call.id, _display_name(call, self.tools.get(call.name)))
            await self.answer(outcome)
        except Exception as exc:
            logger.exception("the call of tool %r failed outside the tool", call.name)
            outcome.content = self.internal_error_text(exc)
        finally:
            self._cancellation.unregister_tool(call.id)

    # --- the steps of one call

    async def answer(self, outcome: Outcome) -> None:
        """Answer a call."""
        if problem := outcome.call.problem:
            outcome.content = f"Error executing tool: invalid arguments: {problem}"
            await self.emit_error(outcome, "ValueError", f"invalid arguments: {problem}")
        else:
            await self.consult_and_run(outcome)

    async def consult_and_run(self, outcome: Outcome) -> None:
        """Ask the hooks, run the tool and report, in that order."""
        gate = find_gate(self.coordinator)
        if self.points.reaches(TOOL_PRE):
            with deferring(gate) if gate is not None else nullcontext():
                decision = await self.ask(outcome, TOOL_PRE, _payload(outcome, own_copy(outcome.arguments)))
            if decision.denied:
                outcome.content = self.denied_text(decision.reason)
                return
            changed = decision.changed("tool_input", dict, outcome.arguments)
            if changed is not None:
                outcome.arguments = own_copy(changed)
        tool = self.tools.get(outcome.tool_name)
        if tool is None:
            await self.unknown_tool(outcome)
            return
        if gate is not None:
            refusal = await self._ask_gate(gate, outcome, tool)
            if refusal is not None:
                outcome.content = self.denied_text(refusal)
                return
        outcome.started_s = time.perf_counter()
        try:
            with running_approved(gate, tool, outcome.arguments) if gate is not None else nullcontext():
                result = as_tool_result(await self._execute(tool, outcome))
        except Exception as exc:
            logger.warning("tool %r raised", outcome.tool_name, exc_info=True)
            await self.tool_failed(outcome, exc)
        else:
            await self.report(outcome, result)

    async def _ask_gate(self, gate: ApprovalGate, outcome: Outcome, tool: Tool) -> str | None:
        """Ask whether exactly these arguments may run; returns why not, None for a yes."""
        copied, frozen = own_copy(outcome.arguments), own_copy(outcome.arguments)
        call = {"tool_call_id": outcome.call.id, "tool_obj": tool, "parallel_group_id": outcome.group_id}
        refusal = await ask_gate(gate, outcome.tool_name, copied, call)
        if refusal is not None:
            return refusal
        if copied != frozen:
            return await self.points.changed_after_approval(outcome.tool_name, outcome.call.id)
        outcome.arguments = frozen
        return None

    async def report(self, outcome: Outcome, result: ToolResult) -> None:
        """Tell the hooks of a result; the model is shown it, or what they put in its place."""
        outcome.content = result_content(result)
        if not self.points.reaches(TOOL_POST):
            return
        sent = result.safe_hook_presentation() if self.points.listens(TOOL_POST) else None
        payload = _payload(outcome, outcome.arguments)
        payload["result"] = payload["tool_result"] = sent
        payload["duration_ms"] = round((time.perf_counter() - outcome.started_s) * 1000, 3)
        decision = await self.ask(outcome, TOOL_POST, payload)
        if decision.denied:
            logger.warning("a hook denies %r after it ran, which has no effect", outcome.tool_name)
        if sent is not None and not decision.is_stamped:
            replaced = replaced_content(decision.data, sent)
            if replaced is not None:
                outcome.content = replaced

    async def unknown_tool(self, outcome: Outcome) -> None:
        """Answer a call of a tool that is not mounted."""
        text = f"Tool '{outcome.tool_name}' not found"
        outcome.content = f"Error: {text}"
        await self.emit_error(outcome, "RuntimeError", text)

    async def tool_failed(self, outcome: Outcome, error: Exception) -> None:
        """Answer a call whose tool raised."""
        outcome.content = f"Error executing tool: {describe(error)}"
        await self.emit_error(outcome, type(error).__name__, str(error))

    def denied_text(self, reason: str) -> str:
        return f"Denied by hook: {reason or NO_REASON}"

    def internal_error_text(self, error: Exception) -> str:
        return f"Error executing tool: {describe(error)}"

    async def ask(self, outcome: Outcome, event: str, payload: EventData) -> Decision:
        """Let hooks decide about a call; what they inject waits until the batch is answered."""
        decision = await self.points.offer(event, payload, outcome.tool_name, original=outcome.arguments)
        if decision.injection is not None:
            outcome.injections.append(decision.injection)
        return decision

    async def emit_error(self, outcome: Outcome, kind: str, text: str) -> None:
        """Announce that a call failed."""
        payload = {
            "tool_name": outcome.tool_name,
            "tool_call_id": outcome.call.id,
            "error": {"type": kind, "msg": text},
            "parallel_group_id": outcome.group_id,
        }
        await self.points.emit(TOOL_ERROR, payload)

    async def _execute(self, tool: Tool, outcome: Outcome) -> object:
        """Run the tool; meanwhile the coordinator says which call the current task serves.

        The tool gets a dict of its own: what it does to that must not change the stored call.
        """
        task, running = asyncio.current_task(), _dispatches_of(self.coordinator)
        running[task] = dispatch = {"tool_call_id": outcome.call.id, "parallel_group_id": outcome.group_id}
        _set_attribute(self.coordinator, _OLDER_DISPATCH, dispatch)
        try:
            return await tool.execute(own_copy(outcome.arguments))
        finally:
            running.pop(task, None)
            _set_attribute(self.coordinator, _OLDER_DISPATCH, next(iter(running.values())) if running else {})


def failure(error: Exception) -> ToolResult:
    """Return a tool's exception as the result it stands for."""
    return ToolResult(success=False, error={"message": describe(error) or type(error).__name__})


def _payload(outcome: Outcome, tool_input: JsonObject) -> EventData:
    return {
        "tool_name": outcome.tool_name,
        "tool_call_id": outcome.call.id,
        "tool_input": tool_input,
        "parallel_group_id": outcome.group_id,
    }


def _display_name(call: Call, tool: object) -> str:
    """Return the name under which a call is shown as running: a delegation is known by its agent."""
    argument = getattr(tool, "display_argument", None) or DISPLAY_ARGUMENTS.get(call.name)
    shown = call.arguments.get(argument) if isinstance(argument, str) else None
    return shown if isinstance(shown, str) and shown else call.name


def _dispatches_of(coordinator: Coordinator) -> Dispatches:
    """Return the coordinator's running calls by task, under the name that delegating tools read."""
    running = getattr(coordinator, "_tool_dispatch_contexts", None)
    if isinstance(running, dict):
        return running
    running = {}
    _set_attribute(coordinator, "_tool_dispatch_contexts", running)
    return running


def _set_attribute(coordinator: Coordinator, name: str, value: object) -> None:
    if coordinator is None:
        return
    try:
        setattr(coordinator, name, value)
    except Exception:
        logger.debug("the coordinator takes no attribute %s", name, exc_info=True)


_COUNTED_DIGITS = 8


def uuid_series() -> Iterator[str]:
    """Yield UUIDs (version 4): one random start, its last digits counted up for each further one."""
    start = str(uuid.uuid4())
    prefix, first = start[:-_COUNTED_DIGITS], int(start[-_COUNTED_DIGITS:], 16)
    values = 16**_COUNTED_DIGITS
    for count in range(values):
        yield f"{prefix}{(first + count) % values:08x}"
