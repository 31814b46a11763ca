"""A handler's errors and context variables stay its own; cancelling the emitter reaches the handler."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from amplifier_core.hooks import HookRegistry, HookResult

Handler = Callable[[str, dict[str, Any]], Any]

colour: ContextVar[str] = ContextVar("colour", default="none")


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


def noting(notes: list[str], note: str) -> Handler:
    async def handler(event: str, data: Any) -> None:
        notes.append(note)

    return handler


async def forever() -> None:
    await asyncio.Event().wait()


def raising(error: BaseException, style: str) -> Handler:
    """Return a handler that raises: a plain one, a coroutine, or a coroutine that waits for something before."""

    def at_once(event: str, data: Any) -> None:
        raise error

    async def awaited(event: str, data: Any) -> None:
        raise error

    async def suspended(event: str, data: Any) -> None:
        await asyncio.sleep(0)
        raise error

    return {"sync": at_once, "async": awaited, "suspending": suspended}[style]


class Outrage(BaseException):
    """Derived from BaseException, as libraries do for errors nobody is meant to catch."""


@pytest.mark.parametrize("style", ["sync", "async", "suspending"])
def test_a_keyboard_interrupt_ends_the_emitter(hooks: HookRegistry, style: str) -> None:
    hooks.register("event", raising(KeyboardInterrupt("stop"), style))

    async def emit() -> None:
        await hooks.emit("event", {})

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(emit())


@pytest.mark.parametrize("style", ["sync", "async", "suspending"])
@pytest.mark.parametrize(
    "error",
    [ValueError("wrong"), StopIteration("odd"), asyncio.CancelledError(), TimeoutError(), SystemExit(3), Outrage()],
    ids=lambda error: type(error).__name__,
)
async def test_a_handler_that_raises_is_logged_and_skipped(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, error: BaseException, style: str
) -> None:
    notes: list[str] = []
    hooks.register("tool:pre", raising(error, style), name="broken")
    hooks.register("tool:pre", noting(notes, "later"))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert (result.action, result.data["n"], notes) == ("continue", 1, ["later"])
    [record] = [record for record in caplog.records if record.name.startswith("amplifier_core.")]
    assert record.levelname == "ERROR"
    assert "broken" in record.getMessage()
    assert "tool:pre" in record.getMessage()
    await asyncio.sleep(0)  # the emitting task itself is none the worse


async def test_a_handler_whose_own_task_was_cancelled_is_skipped(hooks: HookRegistry) -> None:
    async def handler(event: str, data: Any) -> HookResult:
        child = asyncio.create_task(forever())
        asyncio.get_running_loop().call_soon(child.cancel)
        await child
        return HookResult(action="deny")

    hooks.register("tool:pre", handler)

    assert (await hooks.emit("tool:pre", {})).action == "continue"


@pytest.mark.parametrize("suspends", [False, True], ids=["straight through", "suspending"])
async def test_context_variables_a_handler_sets_are_seen_by_nobody_else(hooks: HookRegistry, suspends: bool) -> None:
    seen: list[str] = []

    async def painting(event: str, data: Any) -> None:
        seen.append(colour.get())
        token = colour.set("red")
        if suspends:
            await asyncio.sleep(0)
        seen.append(await asyncio.create_task(child()))
        colour.reset(token)
        colour.set("blue")
        seen.append(colour.get())

    async def child() -> str:
        return colour.get()

    async def looking(event: str, data: Any) -> None:
        seen.append(colour.get())

    hooks.register("tool:pre", painting)
    hooks.register("tool:pre", looking)
    colour.set("emitter")

    await hooks.emit("tool:pre", {})

    assert seen == ["emitter", "red", "blue", "emitter"]
    assert colour.get() == "emitter"


@pytest.mark.parametrize("suspends", [False, True], ids=["straight through", "suspending"])
async def test_context_variables_are_isolated_when_events_are_collected_too(
    hooks: HookRegistry, suspends: bool
) -> None:
    async def painting(event: str, data: Any) -> dict[str, Any]:
        before = colour.get()
        colour.set("red")
        if suspends:
            await asyncio.sleep(0)
        return {"data": {"before": before, "after": colour.get()}}

    hooks.register("tool:pre", painting)
    hooks.register("tool:pre", painting)
    colour.set("emitter")

    assert await hooks.emit_and_collect("tool:pre", {}) == [{"before": "emitter", "after": "red"}] * 2
    assert colour.get() == "emitter"


async def test_a_suspended_handler_runs_in_the_emitting_task_beside_others(hooks: HookRegistry) -> None:
    gate, tasks = asyncio.Event(), list[Any]()

    async def waiting(event: str, data: Any) -> HookResult:
        tasks.append(asyncio.current_task())
        await gate.wait()
        tasks.append(asyncio.current_task())
        return HookResult(action="deny", reason=data["who"])

    hooks.register("tool:pre", waiting)
    emits = [asyncio.create_task(hooks.emit("tool:pre", {"who": who})) for who in "ab"]
    await asyncio.sleep(0)
    gate.set()

    assert [result.reason for result in await asyncio.gather(*emits)] == ["a", "b"]
    assert tasks == [*emits, *emits]


class Waiting:
    """A handler that waits for ever and says when it began and how it ended."""

    def __init__(self, on_cancel: Callable[[], Any] | None = None) -> None:
        self.started = asyncio.Event()
        self.notes: list[str] = []
        self._on_cancel = on_cancel

    async def __call__(self, event: str, data: Any) -> Any:
        self.started.set()
        try:
            await forever()
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            if self._on_cancel is None:
                raise
            return self._on_cancel()
        finally:
            await asyncio.sleep(0)
            self.notes.append("tidied up")


def fail() -> None:
    raise ValueError("could not tidy up")


def emit(hooks: HookRegistry) -> Awaitable[Any]:
    return hooks.emit("tool:pre", {})


def collect(hooks: HookRegistry) -> Awaitable[Any]:
    return hooks.emit_and_collect("tool:pre", {}, timeout=60)


@pytest.mark.parametrize("start", [emit, collect])
@pytest.mark.parametrize(
    "on_cancel",
    [None, lambda: None, lambda: HookResult(action="deny"), lambda: 42, fail],
    ids=["passed on", "swallowed", "answered", "answered with nonsense", "turned into an error"],
)
async def test_cancelling_the_emitter_cancels_the_handler_and_skips_the_rest(
    hooks: HookRegistry, on_cancel: Callable[[], Any] | None, start: Callable[[HookRegistry], Awaitable[Any]]
) -> None:
    waiting, later = Waiting(on_cancel), list[str]()
    hooks.register("tool:pre", waiting)
    hooks.register("tool:pre", noting(later, "later"))

    async def emitter() -> None:
        await start(hooks)

    task = asyncio.create_task(emitter())
    await waiting.started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting.notes == ["cancelled", "tidied up"]
    assert later == []


async def test_a_cancellation_that_was_on_its_way_before_the_emit_is_not_lost(hooks: HookRegistry) -> None:
    waiting, later = Waiting(), list[str]()
    hooks.register("tool:pre", waiting)
    hooks.register("tool:pre", noting(later, "later"))

    async def emitter() -> None:
        asyncio.current_task().cancel()  # as a signal handler does that interrupts the running task
        await hooks.emit("tool:pre", {})

    task = asyncio.create_task(emitter())

    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting.notes == ["cancelled", "tidied up"]
    assert later == []


async def test_a_task_that_goes_on_after_its_cancellation_can_still_emit(hooks: HookRegistry) -> None:
    notes: list[str] = []
    hooks.register("session:end", raising(asyncio.CancelledError(), "suspending"))
    hooks.register("session:end", noting(notes, "later"))
    started = asyncio.Event()

    async def emitter() -> HookResult:
        try:
            started.set()
            await forever()
        finally:
            result = await hooks.emit("session:end", {"status": "cancelled"})
            notes.append(result.action)

    task = asyncio.create_task(emitter())
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes == ["later", "continue"]


@pytest.mark.parametrize("is_handled", [True, False], ids=["handled", "raised"])
async def test_a_time_out_inside_a_handler_is_its_own_affair(hooks: HookRegistry, is_handled: bool) -> None:
    notes: list[str] = []

    async def impatient(event: str, data: Any) -> HookResult:
        try:
            async with asyncio.timeout(0):
                await forever()
        except TimeoutError:
            if not is_handled:
                raise
        return HookResult(action="modify", data={"gave": "up"})

    hooks.register("tool:pre", impatient)
    hooks.register("tool:pre", noting(notes, "later"))

    result = await hooks.emit("tool:pre", {})

    assert notes == ["later"]
    assert ("gave" in result.data) is is_handled


async def test_a_task_group_that_fails_inside_a_handler_is_its_own_affair(hooks: HookRegistry) -> None:
    notes: list[str] = []

    async def broken() -> None:
        raise ValueError("wrong")

    async def grouping(event: str, data: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(broken())
            await forever()

    hooks.register("tool:pre", grouping)
    hooks.register("tool:pre", noting(notes, "later"))

    assert (await hooks.emit("tool:pre", {})).action == "continue"
    assert notes == ["later"]


@pytest.mark.parametrize(
    "on_cancel", [None, lambda: None, fail], ids=["passed on", "swallowed", "turned into an error"]
)
async def test_a_time_out_around_an_emit_ends_it(hooks: HookRegistry, on_cancel: Callable[[], Any] | None) -> None:
    waiting, later = Waiting(on_cancel), list[str]()
    hooks.register("tool:pre", waiting)
    hooks.register("tool:pre", noting(later, "later"))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await hooks.emit("tool:pre", {})

    assert waiting.notes == ["cancelled", "tidied up"]
    assert later == []
    assert asyncio.current_task().cancelling() == 0


async def test_closing_an_emit_closes_its_handler(hooks: HookRegistry, caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []

    async def tidy() -> None:
        try:
            await forever()
        finally:
            notes.append("closed")

    handling = tidy()
    hooks.register("tool:pre", lambda event, data: handling)
    hooks.register("tool:pre", noting(notes, "later"))
    emitting = hooks.emit("tool:pre", {})
    emitting.send(None)

    emitting.close()

    assert notes == ["closed"]
    assert caplog.records == []


async def test_concurrent_emits_do_not_disturb_each_other_when_one_is_cancelled(hooks: HookRegistry) -> None:
    gate = asyncio.Event()

    async def waiting(event: str, data: Any) -> None:
        await gate.wait()

    hooks.register("tool:pre", waiting)
    doomed, lucky = (asyncio.create_task(hooks.emit("tool:pre", {})) for _ in range(2))
    await asyncio.sleep(0)
    doomed.cancel()
    gate.set()

    assert (await lucky).action == "continue"
    with pytest.raises(asyncio.CancelledError):
        await doomed
