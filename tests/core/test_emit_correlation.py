"""Emitting the events of a model call stamps them with the id of that call."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from amplifier_core.correlation import current_request_id, reset_request_id
from amplifier_core.hooks import HookRegistry, HookResult

REQUEST, RETRY, THROTTLE, RESPONSE, ERROR = (
    "llm:request",
    "provider:retry",
    "provider:throttle",
    "llm:response",
    "provider:error",
)
EVENTS = [REQUEST, RETRY, THROTTLE, RESPONSE, ERROR]


@pytest.fixture(autouse=True)
def no_call_in_flight() -> Iterator[None]:
    reset_request_id()
    yield
    reset_request_id()


@pytest.fixture(params=[True, False], ids=["heard", "unheard"])
def hooks(request: pytest.FixtureRequest) -> HookRegistry:
    """A registry with a handler on every event, and one with none."""
    registry = HookRegistry()
    if request.param:
        for event in EVENTS:
            registry.register(event, lambda event, data: None)
    return registry


async def emitted_id(hooks: HookRegistry, event: str, **data: Any) -> Any:
    return (await hooks.emit(event, data)).data.get("request_id")


@pytest.mark.parametrize("end", [RESPONSE, ERROR])
async def test_the_events_of_one_call_carry_the_same_id(hooks: HookRegistry, end: str) -> None:
    opened = await emitted_id(hooks, REQUEST)
    assert current_request_id() == opened == str(UUID(opened))

    others = [await emitted_id(hooks, event) for event in (RETRY, THROTTLE, RETRY, end)]

    assert others == [opened] * 4
    assert current_request_id() is None
    assert await emitted_id(hooks, REQUEST) not in (None, opened)


@pytest.mark.parametrize("event", [RETRY, THROTTLE, RESPONSE, ERROR])
async def test_outside_a_call_there_is_no_id(hooks: HookRegistry, event: str) -> None:
    result = await hooks.emit(event, {"n": 1})

    assert "request_id" not in result.data
    assert current_request_id() is None


@pytest.mark.parametrize("event", EVENTS)
async def test_an_id_of_the_emitter_is_adopted(hooks: HookRegistry, event: str) -> None:
    await hooks.emit(REQUEST, {})

    assert await emitted_id(hooks, event, request_id="mine") == "mine"
    assert current_request_id() == (None if event in (RESPONSE, ERROR) else "mine")


@pytest.mark.parametrize("given", [None, "", 5, ["id"], b"id"], ids=repr)
@pytest.mark.parametrize("event", [RETRY, RESPONSE])
async def test_an_id_that_is_no_text_is_replaced(hooks: HookRegistry, event: str, given: Any) -> None:
    opened = await emitted_id(hooks, REQUEST, request_id=given)

    assert opened == str(UUID(opened))
    assert await emitted_id(hooks, event, request_id=given) == opened


async def test_the_emitters_own_dict_is_left_alone(hooks: HookRegistry) -> None:
    payload: dict[str, Any] = {"n": 1}

    await hooks.emit(REQUEST, payload)

    assert payload == {"n": 1}


@pytest.mark.parametrize("payload", [None, [1], "text"], ids=repr)
async def test_a_payload_that_is_no_dict_opens_a_call_all_the_same(hooks: HookRegistry, payload: Any) -> None:
    assert (await hooks.emit(REQUEST, payload)).data == {}
    assert current_request_id() is not None


async def test_other_events_take_no_part(hooks: HookRegistry) -> None:
    opened = await emitted_id(hooks, REQUEST)

    assert await emitted_id(hooks, "tool:pre") is None
    assert await emitted_id(hooks, "tool:pre", request_id="mine") == "mine"
    assert current_request_id() == opened


async def test_handlers_see_the_id_that_the_emitter_gets() -> None:
    hooks, seen = HookRegistry(), list[Any]()
    hooks.set_default_fields(request_id="default", session_id="s-1")
    for event in EVENTS:
        hooks.register(event, lambda event, data: seen.append(data["request_id"]))

    opened = [await emitted_id(hooks, event) for event in (REQUEST, RETRY, RESPONSE)]

    assert seen == opened == [opened[0]] * 3
    assert opened[0] != "default"


async def test_a_modification_may_drop_the_id_but_not_the_call() -> None:
    hooks = HookRegistry()
    hooks.register(REQUEST, lambda event, data: HookResult(action="modify", data={"n": 1}))

    assert (await hooks.emit(REQUEST, {})).data == {"n": 1}
    assert current_request_id() is not None


async def test_a_call_is_opened_in_the_emitters_context_even_when_a_task_does_the_emitting(hooks: HookRegistry) -> None:
    emitting = asyncio.create_task(hooks.emit(REQUEST, {}))
    opened = current_request_id()

    assert (await emitting).data["request_id"] == opened is not None
    assert (await asyncio.create_task(hooks.emit(RESPONSE, {}))).data["request_id"] == opened
    assert current_request_id() is None


async def test_calls_in_separate_tasks_are_kept_apart(hooks: HookRegistry) -> None:
    async def call() -> list[str]:
        ids = []
        for event in (REQUEST, RETRY, RESPONSE):
            ids.append(await emitted_id(hooks, event))
            await asyncio.sleep(0)
        return ids

    calls = await asyncio.gather(*(call() for _ in range(5)))

    assert all(len(set(ids)) == 1 for ids in calls)
    assert len({ids[0] for ids in calls}) == 5
    assert current_request_id() is None


@pytest.mark.parametrize("suspends", [False, True], ids=["straight through", "suspending"])
async def test_a_handler_that_calls_a_model_itself_does_not_touch_the_call_it_watches(suspends: bool) -> None:
    hooks, inner = HookRegistry(), list[str]()

    async def consulting(event: str, data: dict[str, Any]) -> None:
        if "inner" not in data:
            if suspends:
                await asyncio.sleep(0)
            inner.append(await emitted_id(hooks, REQUEST, inner=True))
            inner.append(await emitted_id(hooks, RESPONSE, inner=True))

    hooks.register(REQUEST, consulting)

    opened = await emitted_id(hooks, REQUEST)

    assert inner[0] == inner[1] != opened
    assert await emitted_id(hooks, RESPONSE) == opened


async def test_collecting_takes_no_part(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    for event in EVENTS:
        hooks.register(event, lambda event, data: seen.append(data))

    await hooks.emit_and_collect(REQUEST, {"n": 1})
    assert current_request_id() is None
    opened = await emitted_id(hooks, REQUEST)
    seen.clear()
    await hooks.emit_and_collect(RESPONSE, {"n": 1})

    assert seen == [{"n": 1}]
    assert current_request_id() == opened
