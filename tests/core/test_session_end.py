"""The end of a session: cleanup, and the context manager that takes care of it."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amplifier_core import AmplifierSession, HookResult, ModuleLoader

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]
Started = Callable[..., Awaitable[AmplifierSession]]
LoaderFor = Callable[..., ModuleLoader]


def plan_of(**session: Any) -> dict[str, Any]:
    """Return a plan for the stand-in loader, with more settings in its session section."""
    return {
        "session": {"orchestrator": "loop-x", "context": "context-x", **session},
        "providers": [{"module": "provider-x"}],
    }


async def test_cleanup_announces_the_end_before_any_cleanup_runs(started: Started, listen: Listen) -> None:
    session = await started(session_id="s")
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "session:end")
    heard_at_cleanup: list[int] = []
    session.coordinator.register_cleanup(lambda: heard_at_cleanup.append(len(heard)))
    await session.execute("hello")

    await session.cleanup()

    assert heard_at_cleanup == [1]
    payload = heard[0][1]
    assert set(payload) == {"session_id", "status", "stats", "timestamp"}
    assert (payload["session_id"], payload["status"]) == ("s", "completed")
    assert payload["stats"] == session.status.to_dict()


async def test_cleanups_run_last_one_first_sync_and_async(started: Started) -> None:
    order: list[str] = []
    session = await started()

    async def slow() -> None:
        await asyncio.sleep(0)
        order.append("async")

    for cleanup in (lambda: order.append("first"), slow, lambda: order.append("last")):
        session.coordinator.register_cleanup(cleanup)
    await session.cleanup()

    assert order == ["last", "async", "first"]


async def test_cleaning_up_twice_announces_once_and_runs_every_cleanup_once(started: Started, listen: Listen) -> None:
    session = await started()
    heard = listen(session.coordinator, "session:end")
    runs: list[int] = []
    session.coordinator.register_cleanup(lambda: runs.append(1))

    await session.cleanup()
    await session.cleanup()

    assert (len(heard), runs) == (1, [1])
    assert not session.initialized


async def test_concurrent_cleanups_announce_once_and_run_every_cleanup_once(started: Started, listen: Listen) -> None:
    session = await started()
    runs: list[str] = []

    async def slow_handler(event: str, data: dict[str, Any]) -> None:
        runs.append(event)
        await asyncio.sleep(0)

    session.coordinator.hooks.register("session:end", slow_handler)
    session.coordinator.register_cleanup(lambda: runs.append("cleanup"))

    await asyncio.gather(session.cleanup(), session.cleanup())

    assert sorted(runs) == ["cleanup", "session:end"]


async def test_a_session_that_was_never_initialized_cleans_up_without_an_announcement(listen: Listen) -> None:
    session = AmplifierSession(plan_of())
    heard = listen(session.coordinator, "session:end")
    runs: list[int] = []
    session.coordinator.register_cleanup(lambda: runs.append(1))

    await session.cleanup()

    assert (heard, runs) == ([], [1])


async def test_cleanups_that_raise_do_not_stop_the_others(started: Started, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []
    session = await started()

    def broken() -> None:
        raise ValueError("cannot close")

    for cleanup in (lambda: runs.append(1), broken, lambda: runs.append(2)):
        session.coordinator.register_cleanup(cleanup)
    await session.cleanup()

    assert runs == [2, 1]
    assert "Error during cleanup: cannot close" in caplog.text
    assert not session.initialized


@pytest.mark.parametrize("error", [asyncio.CancelledError("c"), KeyboardInterrupt("k"), SystemExit(1)], ids=repr)
async def test_an_interruption_in_a_cleanup_comes_out_when_everything_is_clean(
    modules: Any, error: BaseException
) -> None:
    before = list(sys.path)
    runs: list[int] = []
    session = modules.session()
    await session.initialize()

    def interrupt() -> None:
        raise error

    for cleanup in (lambda: runs.append(1), interrupt, lambda: runs.append(2)):
        session.coordinator.register_cleanup(cleanup)

    raised: BaseException | None = None
    try:
        await session.cleanup()
    except BaseException as exc:  # noqa: BLE001 - it has to be the very object
        raised = exc

    assert raised is error
    assert runs == [2, 1]
    assert not session.initialized
    assert sys.path == before


async def test_cancelling_a_cleanup_in_the_middle_still_runs_the_rest(started: Started) -> None:
    runs: list[int] = []
    waiting = asyncio.Event()
    session = await started()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    session.coordinator.register_cleanup(lambda: runs.append(1))
    session.coordinator.register_cleanup(wait)
    task = asyncio.create_task(session.cleanup())
    await waiting.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert runs == [1]
    assert not session.initialized


async def test_cancelling_the_announcement_of_the_end_still_cleans_up(started: Started) -> None:
    runs: list[int] = []
    waiting = asyncio.Event()
    session = await started()

    async def wait(event: str, data: dict[str, Any]) -> None:
        waiting.set()
        await asyncio.Event().wait()

    session.coordinator.hooks.register("session:end", wait)
    session.coordinator.register_cleanup(lambda: runs.append(1))
    task = asyncio.create_task(session.cleanup())
    await waiting.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert runs == [1]
    assert not session.initialized


async def test_an_end_that_cannot_be_announced_is_no_obstacle(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="amplifier_core")
    runs: list[int] = []
    session = await started()
    session.coordinator.register_cleanup(lambda: runs.append(1))

    async def broken_emit(event: str, data: dict[str, Any]) -> HookResult:
        raise ConnectionError("no one listens")

    session.coordinator.hooks.emit = broken_emit  # type: ignore[method-assign]
    await session.cleanup()

    assert runs == [1]
    assert [record.levelno for record in caplog.records if "session:end" in record.getMessage()] == [logging.DEBUG]


async def test_a_cleaned_up_session_can_be_initialized_again(modules: Any, listen: Listen) -> None:
    session = modules.session()
    heard = listen(session.coordinator, "session:start", "session:end")

    for prompt in ("one", "two"):
        await session.initialize()
        assert await session.execute(prompt) == f"answer to {prompt}"
        await session.cleanup()

    assert [event for event, _ in heard] == ["session:start", "session:end", "session:end"]


# The context manager


async def test_the_context_manager_initializes_and_cleans_up(loader_for: LoaderFor) -> None:
    session = AmplifierSession(plan_of(), loader=loader_for())

    async with session as entered:
        assert entered is session
        assert session.initialized

    assert not session.initialized


async def test_the_context_manager_never_swallows_an_error(loader_for: LoaderFor) -> None:
    runs: list[int] = []

    async def fail_inside() -> None:
        async with AmplifierSession(plan_of(), loader=loader_for()) as session:
            session.coordinator.register_cleanup(lambda: runs.append(1))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail_inside()

    assert runs == [1]


async def test_entering_cleans_up_what_was_mounted_before_initialize_failed(modules: Any) -> None:
    before = list(sys.path)
    orchestrator = modules.write(
        "orchestrator",
        mount="""
            await coordinator.mount("orchestrator", thing)
            return lambda: config["runs"].append("cleaned up")
        """,
    )
    runs: list[str] = []
    plan = {
        "session": {
            "orchestrator": orchestrator.entry(config={"runs": runs}),
            "context": modules.write("context", mount='raise OSError("no disk")').module_id,
        }
    }

    with pytest.raises(RuntimeError, match="Cannot initialize without context manager: no disk"):
        async with modules.session(plan):
            pytest.fail("the body must not run")

    assert runs == ["cleaned up"]
    assert sys.path == before


async def test_methods_replaced_on_the_instance_are_the_ones_called() -> None:
    calls: list[str] = []
    session = AmplifierSession(plan_of())

    async def note(name: str) -> None:
        calls.append(name)

    session.initialize = lambda: note("initialize")  # type: ignore[method-assign]
    session.cleanup = lambda: note("cleanup")  # type: ignore[method-assign]

    async with session:
        calls.append("body")

    assert calls == ["initialize", "body", "cleanup"]


async def test_execute_replaced_on_the_instance_is_the_one_called(started: Started) -> None:
    session = await started()

    async def canned(prompt: str) -> str:
        return f"canned {prompt}"

    session.execute = canned  # type: ignore[method-assign]

    assert await session.execute("hello") == "canned hello"
