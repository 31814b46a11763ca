"""Nothing of a session stays alive after its cleanup, and a process that runs many of them does not grow."""

import asyncio
import gc
import logging
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amplifier_core import AmplifierSession, HookResult

pytestmark = pytest.mark.usefixtures("frozen_past")

SESSIONS = 400
BALLAST = 50_000
ALLOWED_GROWTH = 20_000  # bytes over 200 sessions; a single one that stayed would weigh more than its ballast


@pytest.fixture(autouse=True)
def _no_log_records() -> Iterator[None]:
    """Keep pytest from collecting log records: those of failures hold on to the frames they came from."""
    logger = logging.getLogger("amplifier_core")
    logger.disabled, level = True, logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.disabled = False
    logger.setLevel(level)


@pytest.fixture
def plan(modules: Any) -> dict[str, Any]:
    """A plan with a module of every type; the tool is heavy, so that a session that stays cannot hide."""
    ready = "async def on_session_ready(coordinator):\n    coordinator.session_state[NAME] = coordinator"
    cleanup = "coordinator.register_cleanup(lambda: coordinator.session_state.update(cleaned=thing))"
    return modules.plan(
        tools=[
            modules.write(
                "tool",
                mount=f"""
                    thing.ballast = bytearray({BALLAST})
                    thing.coordinator = coordinator
                    await coordinator.mount("tools", thing)
                    {cleanup}
                    return lambda: thing.ballast
                """,
                tail=ready,
            ).entry(config={"a": [1]})
        ],
        hooks=[
            modules.write(
                "hook",
                mount="""
                    for event in ("session:start", "tool:pre", "prompt:submit", "session:end"):
                        coordinator.hooks.register(event, thing, name=NAME)
                    coordinator.register_capability("test.thing", thing)
                    coordinator.register_contributor("test.things", NAME, lambda: [thing, coordinator])
                """,
                tail=ready,
            ).entry()
        ],
    )


def parts_of(session: AmplifierSession) -> list[weakref.ref[Any]]:
    """Return weak references to a session and everything that belongs to it."""
    coordinator = session.coordinator
    points = coordinator.mount_points
    parts = [session, session.loader, coordinator, coordinator.hooks, coordinator.cancellation]
    parts += [points["orchestrator"], points["context"], *points["providers"].values(), *points["tools"].values()]
    parts += [coordinator.get_capability("test.thing")]
    return [weakref.ref(part) for part in parts if part is not None]


async def run(make_session: Callable[..., AmplifierSession], plan: dict[str, Any]) -> list[weakref.ref[Any]]:
    session = make_session(plan)
    session.coordinator.hooks.register("prompt:submit", lambda event, data: HookResult())
    async with session:
        assert await session.execute("hello") == "answer to hello"
        assert len(await session.coordinator.collect_contributions("test.things")) == 1
        references = parts_of(session)
    assert session.status.load_failures == []
    return references


def alive(references: list[weakref.ref[Any]]) -> list[str]:
    gc.collect()
    return [type(reference()).__name__ for reference in references if reference() is not None]


async def test_hundreds_of_sessions_leave_nothing_reachable_and_memory_flat(modules: Any, plan: dict[str, Any]) -> None:
    path = list(sys.path)
    references: list[weakref.ref[Any]] = []
    sizes = {}
    tracemalloc.start()
    try:
        for number in range(1, SESSIONS + 1):
            references += await run(modules.session, plan)
            if number % 100 == 0:
                assert len(references) == 1_000
                assert alive(references) == []
                references.clear()
                modules.forget_the_past()
                sizes[number] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert sizes[SESSIONS] - sizes[200] < ALLOWED_GROWTH
    assert sys.path == path


async def test_sessions_that_run_at_the_same_time_leave_nothing_behind(modules: Any, plan: dict[str, Any]) -> None:
    path = list(sys.path)

    references = await asyncio.gather(*(run(modules.session, plan) for _ in range(50)))

    assert alive([reference for group in references for reference in group]) == []
    assert sys.path == path


async def test_sessions_that_could_not_be_brought_up_leave_nothing_behind(modules: Any, plan: dict[str, Any]) -> None:
    path = list(sys.path)
    plan["session"]["context"] = modules.write("context", mount="raise OSError(coordinator)").module_id
    references = []

    for _ in range(20):
        session = modules.session(plan)
        references += parts_of(session)
        try:
            async with session:
                pytest.fail("it has no context")
        except RuntimeError:
            pass
    del session

    assert alive(references) == []
    assert sys.path == path


async def test_modules_that_failed_leave_nothing_behind(modules: Any, plan: dict[str, Any]) -> None:
    path = list(sys.path)
    things = "things = weakref.WeakSet()"
    mount = 'things.add(thing)\nawait coordinator.mount("tools", thing)\nraise OSError(thing, coordinator)'
    failing = modules.write("tool", head=f"import weakref\n{things}", mount=mount)
    plan["tools"].append(failing.entry())
    references = []

    for _ in range(20):
        async with modules.session(plan) as session:
            references += parts_of(session)
    del session
    gc.collect()

    assert alive(references) == []
    assert failing.times_mounted == 20
    assert len(failing.code.things) == 0
    assert sys.path == path


@pytest.mark.parametrize("by_task", [False, True])
async def test_cancelled_and_failed_turns_leave_nothing_behind(
    modules: Any, plan: dict[str, Any], by_task: bool
) -> None:
    orchestrator = modules.write(
        "orchestrator",
        definition="""
            import asyncio

            class Thing:
                async def execute(self, prompt, context, providers, tools, hooks, coordinator):
                    coordinator.session_state["running"].set()
                    if prompt == "wait":
                        await asyncio.Event().wait()
                    raise OSError(coordinator)
        """,
    )
    plan["session"]["orchestrator"] = orchestrator.module_id
    references = []

    for _ in range(20):
        async with modules.session(plan) as session:
            session.coordinator.session_state["running"] = running = asyncio.Event()
            turn = asyncio.create_task(session.execute("wait" if by_task else "fail"))
            await running.wait()
            await session.coordinator.request_cancel(immediate=True)
            if by_task:
                turn.cancel()
            await asyncio.wait([turn])
            assert turn.cancelled() if by_task else isinstance(turn.exception(), OSError)
            references += parts_of(session)
    del session, turn, running

    assert alive(references) == []


async def test_a_session_that_nobody_initialized_or_cleaned_up_can_be_collected(modules: Any) -> None:
    references = []
    for _ in range(20):
        session = modules.session()
        references += parts_of(session)
    del session

    assert alive(references) == []


async def test_a_session_in_use_is_alive(modules: Any, plan: dict[str, Any]) -> None:
    async with modules.session(plan) as session:
        references = parts_of(session)

        assert len(alive(references)) == len(references)
