"""Collecting the data of every handler's answer, each handler bounded by a time-out."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core.hooks import HookRegistry, HookResult
from amplifier_core.models import ToolResult

Handler = Callable[[str, dict[str, Any]], Any]


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


def answering(answer: object) -> Handler:
    async def handler(event: str, data: Any) -> object:
        return answer

    return handler


async def waiting(event: str, data: Any) -> None:
    await asyncio.Event().wait()


async def test_data_is_collected_in_priority_order_whatever_the_action(hooks: HookRegistry) -> None:
    answers: list[tuple[int, Any]] = [
        (5, {"data": {"from": "dict"}}),
        (4, HookResult(action="inject_context", context_injection="note", data={"from": "inject_context"})),
        (3, HookResult(action="ask_user", data={"from": "ask_user"})),
        (2, HookResult(action="modify", data={})),
        (1, HookResult(action="deny", data={"from": "deny"})),
        (0, HookResult(data={"from": "continue"})),
        (9, None),
        (9, HookResult(action="deny", reason="no data")),
    ]
    for priority, answer in answers:
        hooks.register("tool:pre", answering(answer), priority)

    assert await hooks.emit_and_collect("tool:pre", {}) == [
        {"from": "continue"},
        {"from": "deny"},
        {},
        {"from": "ask_user"},
        {"from": "inject_context"},
        {"from": "dict"},
    ]


async def test_nobody_listening_means_nothing_collected(hooks: HookRegistry) -> None:
    assert await hooks.emit_and_collect("tool:pre", {"n": 1}) == []


async def test_handlers_get_the_payload_and_nothing_else(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.set_default_fields(session_id="s-1")

    def scribbling(event: str, data: dict[str, Any]) -> None:
        seen.append(dict(data))
        data["scribble"] = True

    for event in ("tool:post", "llm:request"):
        hooks.register(event, scribbling)
        hooks.register(event, scribbling)
        messages = [1]
        payload = {"messages": messages, "result": ToolResult(output="text")}

        await hooks.emit_and_collect(event, payload)

        assert seen == [{"messages": [1], "result": {"success": True, "output": "text", "error": None}}] * 2
        assert all(data["messages"] is messages for data in seen)
        assert sorted(payload) == ["messages", "result"]
        seen.clear()


async def test_a_modification_is_not_seen_by_the_next_handler(hooks: HookRegistry) -> None:
    async def echo(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={"n": data["n"] + 1})

    hooks.register("tool:pre", echo)
    hooks.register("tool:pre", echo)

    assert await hooks.emit_and_collect("tool:pre", {"n": 1}) == [{"n": 2}, {"n": 2}]


@pytest.mark.parametrize("payload", [None, [1], "text"], ids=repr)
async def test_a_payload_that_is_no_dict_reaches_handlers_unchanged(hooks: HookRegistry, payload: Any) -> None:
    hooks.register("tool:pre", lambda event, data: {"data": {"is_same": data is payload}})

    assert await hooks.emit_and_collect("tool:pre", payload) == [{"is_same": True}]


@pytest.mark.parametrize(
    "error", [ValueError("wrong"), asyncio.CancelledError(), TimeoutError(), SystemExit(1)], ids=repr
)
@pytest.mark.parametrize("suspends", [False, True], ids=["straight through", "suspending"])
async def test_a_handler_that_raises_is_logged_and_skipped(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, error: BaseException, suspends: bool
) -> None:
    async def broken(event: str, data: Any) -> None:
        if suspends:
            await asyncio.sleep(0)
        raise error

    hooks.register("tool:pre", broken, name="broken")
    hooks.register("tool:pre", answering({"data": {"n": 1}}))

    assert await hooks.emit_and_collect("tool:pre", {}) == [{"n": 1}]
    [record] = [record for record in caplog.records if record.name.startswith("amplifier_core.")]
    assert record.levelname == "ERROR"
    assert "broken" in record.getMessage()


@pytest.mark.parametrize("answer", [42, {"action": "explode", "data": {}}, {"data": [1]}], ids=repr)
async def test_an_answer_that_cannot_be_understood_contributes_nothing(hooks: HookRegistry, answer: Any) -> None:
    hooks.register("tool:pre", answering(answer))
    hooks.register("tool:pre", answering({"data": {"n": 1}}))

    assert await hooks.emit_and_collect("tool:pre", {}) == [{"n": 1}]


async def test_data_of_the_wrong_type_assigned_to_an_answer_is_not_collected(hooks: HookRegistry) -> None:
    answer = HookResult()
    answer.data = [1]  # type: ignore[assignment]
    hooks.register("tool:pre", answering(answer))

    assert await hooks.emit_and_collect("tool:pre", {}) == []


@pytest.mark.parametrize("limit", [0, 0.01])
async def test_a_handler_that_takes_too_long_is_cancelled_and_skipped(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, limit: float
) -> None:
    notes: list[str] = []

    async def slow(event: str, data: Any) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            notes.append("cancelled")
        return {"data": {"too": "late"}}

    hooks.register("tool:pre", waiting, name="first")
    hooks.register("tool:pre", slow, name="second")
    hooks.register("tool:pre", answering({"data": {"n": 1}}), name="third")

    assert await hooks.emit_and_collect("tool:pre", {}, timeout=limit) == [{"n": 1}]
    assert notes == ["cancelled"]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["first" in warnings[0], "second" in warnings[1], len(warnings)] == [True, True, 2]
    assert asyncio.current_task().cancelling() == 0


async def test_every_handler_has_the_whole_time_for_itself(hooks: HookRegistry) -> None:
    ticks = 0

    async def ticking(event: str, data: Any) -> dict[str, Any]:
        nonlocal ticks
        ticks += 1
        await asyncio.sleep(0.002)
        return {"data": {"tick": ticks}}

    for _ in range(10):
        hooks.register("tool:pre", ticking)

    assert len(await hooks.emit_and_collect("tool:pre", {}, timeout=5)) == 10


async def test_no_time_out_means_no_limit(hooks: HookRegistry) -> None:
    gate = asyncio.Event()

    async def patient(event: str, data: Any) -> dict[str, Any]:
        await gate.wait()
        return {"data": {"n": 1}}

    hooks.register("tool:pre", patient)
    asyncio.get_running_loop().call_later(0.01, gate.set)

    assert await hooks.emit_and_collect("tool:pre", {}, timeout=None) == [{"n": 1}]


async def test_changes_to_the_registry_do_not_affect_a_collection_under_way(hooks: HookRegistry) -> None:
    def changing(event: str, data: Any) -> dict[str, Any]:
        hooks.unregister("other")
        hooks.register("tool:pre", answering({"data": {"from": "newcomer"}}), 9)
        return {"data": {"from": "changing"}}

    hooks.register("tool:pre", changing)
    hooks.register("tool:pre", answering({"data": {"from": "other"}}), name="other")

    assert await hooks.emit_and_collect("tool:pre", {}) == [{"from": "changing"}, {"from": "other"}]
