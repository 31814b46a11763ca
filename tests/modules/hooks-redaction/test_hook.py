"""The handler: what later handlers see, and what happens when scrubbing fails."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_hooks_redaction import mount, on_session_ready

from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import MockCoordinator

SECRET, PII = "[REDACTED:SECRET]", "[REDACTED:PII]"
KEY, MAIL = "sk-abcdefghijklmnop", "jane@example.com"
STAMP = {"applied": True, "rules": ["secrets", "pii-basic"]}

Redact = Callable[..., Any]


class Unreadable(dict[str, Any]):
    """Data that raises as soon as somebody looks into it."""

    def items(self) -> Any:
        raise ValueError(KEY)


async def test_a_key_deep_in_a_response_is_masked_and_the_original_is_unchanged(redact: Redact) -> None:
    data = {"raw": {"content": [{"type": "text", "text": f"use {KEY}"}]}}
    before = copy.deepcopy(data)

    seen = await redact("llm:response", data)

    assert seen["raw"]["content"][0]["text"] == f"use {SECRET}"
    assert seen["redaction"] == STAMP
    assert data == before


async def test_a_prompt_is_masked(redact: Redact) -> None:
    seen = await redact("prompt:submit", {"prompt": f"write to {MAIL}"})

    assert (seen["prompt"], seen["redaction"]) == (f"write to {PII}", STAMP)


async def test_data_without_anything_to_mask_is_stamped_all_the_same_and_keeps_its_values(redact: Redact) -> None:
    value = {"a": [1]}

    seen = await redact("plan:start", {"value": value})

    assert seen["redaction"] == STAMP
    assert seen["value"] is value


@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_what_goes_to_and_from_tools_is_not_modified(redact: Redact, event: str) -> None:
    seen = await redact(event, {"tool_input": {"command": KEY}, "result": {"output": KEY}})

    assert (seen["tool_input"], seen["result"]) == ({"command": KEY}, {"output": KEY})
    assert "redaction" not in seen


async def test_skip_events_can_be_chosen(redact: Redact) -> None:
    assert "redaction" not in await redact("prompt:submit", {"prompt": KEY}, skip_events=["prompt:submit"])


async def test_no_skip_events_means_all_events(redact: Redact) -> None:
    assert (await redact("tool:post", {"result": KEY}, skip_events=[]))["result"] == SECRET


async def test_what_the_kernel_adds_survives(redact: Redact) -> None:
    usage = {"cost_usd": "12.34567891", "input_tokens": 1}

    seen = await redact("llm:response", {"session_id": "4155552671", "model": "m-4155552671", "usage": usage})

    assert (seen["session_id"], seen["model"], seen["usage"]) == ("4155552671", "m-4155552671", usage)
    assert "REDACTED" not in seen["timestamp"]


async def test_an_address_in_place_of_the_timestamp_is_masked(coordinator: MockCoordinator) -> None:
    registered: dict[str, Any] = {}
    coordinator.hooks.register = lambda event, handler, **_: registered.setdefault(event, handler)  # type: ignore[method-assign,assignment,misc]
    await mount(coordinator, {})

    result = await registered["plan:start"]("plan:start", {"timestamp": MAIL})

    assert (result.action, result.data["timestamp"]) == ("modify", PII)


async def test_without_rules_data_is_untouched_and_not_stamped(redact: Redact) -> None:
    seen = await redact("prompt:submit", {"prompt": f"{KEY} {MAIL}"}, rules=[])

    assert seen["prompt"] == f"{KEY} {MAIL}"
    assert "redaction" not in seen


@pytest.mark.parametrize("data", [None, [KEY], KEY])
async def test_data_that_is_no_dict_is_left_alone(redact: Redact, data: Any) -> None:
    assert await redact("plan:start", data) == data


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
@pytest.mark.parametrize("failing", [Unreadable(x=1), "endless"], ids=["raises", "endless"])
async def test_when_scrubbing_fails_only_identifiers_are_left(
    redact: Redact, event: str, failing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if failing == "endless":
        failing = []
        failing.append(failing)

    seen = await redact(event, {"session_id": "s1", "span_id": "x", "prompt": KEY, "messages": [KEY], "bad": failing})

    assert seen == {"session_id": "s1", "span_id": "x", "redaction": {"applied": False, "error": "scrub_failed"}}
    assert KEY not in caplog.text
    assert [record.levelname for record in caplog.records if record.levelno >= 30] == ["WARNING"]


@pytest.mark.parametrize("count", [10, 10_000])
async def test_a_request_hands_on_the_very_list_of_messages_without_looking_at_them(redact: Redact, count: int) -> None:
    messages = [Unreadable(content=KEY) for _ in range(count)]

    seen = await redact("provider:request", {"messages": messages, "note": KEY})

    assert seen["messages"] is messages
    assert seen["note"] == SECRET
    assert seen["redaction"] == STAMP | {"skipped": ["messages"]}


async def test_a_request_without_messages_has_nothing_to_except(redact: Redact) -> None:
    assert (await redact("provider:request", {"provider": "p"}))["redaction"] == STAMP


async def test_whoever_writes_messages_has_each_scrubbed_once(coordinator: MockCoordinator) -> None:
    class Message(dict[str, Any]):
        reads = 0

        def items(self) -> Any:
            self.reads += 1
            return super().items()

    await mount(coordinator, {})
    scrub = coordinator.get_capability("redaction.scrub")
    messages = [Message(content=f"{number} {KEY}") for number in range(50)]

    first = scrub({"messages": messages})
    again = scrub({"request": {"messages": messages[10:]}})

    assert [message["content"] for message in first["messages"]] == [f"{number} {SECRET}" for number in range(50)]
    assert again["request"]["messages"] == first["messages"][10:]
    assert {message.reads for message in messages} == {1}


async def test_cleanup_lets_go_of_the_messages_and_scrubbing_goes_on(coordinator: MockCoordinator) -> None:
    import gc
    import weakref

    class Message(dict[str, Any]):
        __slots__ = ("__weakref__",)

    cleanup = await mount(coordinator, {})
    scrub = coordinator.get_capability("redaction.scrub")
    message = Message(content=KEY)
    scrub({"messages": [message]})
    gone = weakref.ref(message)

    cleanup()
    del message
    gc.collect()

    assert gone() is None
    assert scrub({"messages": [{"content": KEY}]}) == {"messages": [{"content": SECRET}]}


async def test_the_offered_scrub_follows_the_configuration(coordinator: MockCoordinator) -> None:
    await mount(coordinator, {"rules": ["pii-basic"], "allowlist": ["kept"]})

    scrub = coordinator.get_capability("redaction.scrub")

    assert scrub({"a": f"{KEY} {MAIL}", "kept": MAIL}) == {"a": f"{KEY} {PII}", "kept": MAIL}


async def test_every_event_of_the_kernel_but_the_skipped_ones_is_covered_before_logging(
    coordinator: MockCoordinator,
) -> None:
    await mount(coordinator, {})

    handlers = coordinator.hooks.list_handlers()

    assert set(handlers) == set(ALL_EVENTS) - {"tool:pre", "tool:post"}
    assert {name for names in handlers.values() for name in names} == {"hooks-redaction"}


async def test_contributed_events_are_covered_when_the_session_is_ready(coordinator: MockCoordinator) -> None:
    coordinator.register_contributor("observability.events", "p", lambda: ["llm:stream_block_delta", "tool:pre", "x:y"])
    await mount(coordinator, {"skip_events": ["tool:pre", "x:y"]})

    await on_session_ready(coordinator)
    await on_session_ready(coordinator)

    handlers = coordinator.hooks.list_handlers()
    assert handlers["llm:stream_block_delta"] == ["hooks-redaction"]
    assert not handlers.keys() & {"tool:pre", "x:y"}


async def test_it_comes_at_priority_10_unless_told_otherwise(coordinator: MockCoordinator) -> None:
    async def other(event: str, data: dict[str, Any]) -> None: ...

    coordinator.hooks.register("plan:start", other, priority=9, name="nine")
    coordinator.hooks.register("plan:start", other, priority=11, name="eleven")
    await mount(coordinator, {})
    await mount(coordinator, {"priority": 20})

    assert coordinator.hooks.list_handlers("plan:start")["plan:start"] == [
        "nine",
        "hooks-redaction",
        "eleven",
        "hooks-redaction",
    ]


async def test_redacting_twice_is_redacting_once(redact: Redact) -> None:
    data = {"prompt": f"{KEY} {MAIL}", "nested": [{"token": "abcdefgh12"}]}

    once = await redact("prompt:submit", data)
    twice = await redact("prompt:complete", once)

    varying = {"timestamp"}
    assert {k: v for k, v in twice.items() if k not in varying} == {k: v for k, v in once.items() if k not in varying}
