"""Which events are logged, when, and for how long."""

import logging
from typing import Any

import pytest
from amplifier_module_hooks_logging import mount, on_session_ready

from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import MockCoordinator

STREAM_EVENTS = ["llm:stream_block_start", "llm:stream_block_delta", "llm:stream_block_end", "llm:stream_aborted"]


def handlers_of(coordinator: Any) -> dict[str, list[str]]:
    return {event: names for event, names in coordinator.hooks.list_handlers().items() if names}


async def test_every_event_of_the_kernel_is_logged_once(logs: Any) -> None:
    await logs.mount()
    await logs.ready()

    for event in ALL_EVENTS:
        await logs.emit(event)

    assert logs.events() == ALL_EVENTS
    assert set(handlers_of(logs.coordinator)) == set(ALL_EVENTS)


async def test_one_handler_by_the_modules_name_after_redaction(logs: Any) -> None:
    async def late(event: str, data: dict[str, Any]) -> None: ...

    logs.coordinator.hooks.register("tool:pre", late, priority=101, name="late")
    logs.coordinator.hooks.register("tool:pre", late, priority=99, name="early")
    await logs.mount()

    assert logs.coordinator.hooks.list_handlers("tool:pre") == {"tool:pre": ["early", "hooks-logging", "late"]}


async def test_an_event_contributed_by_three_sources_gives_one_line_per_emit(logs: Any) -> None:
    for name in ("tool-a", "tool-b"):
        logs.coordinator.register_contributor("observability.events", name, lambda: ["cache:hit"])
    logs.coordinator.register_capability("observability.events", ["cache:hit"])
    await logs.mount(additional_events=["cache:hit"])
    await logs.ready()
    await logs.ready()

    await logs.emit("cache:hit")
    await logs.emit("cache:hit")

    assert logs.events() == ["cache:hit", "cache:hit"]


async def test_declared_events_may_be_a_list_a_string_or_a_callable_and_anything_else_is_skipped(
    logs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    logs.coordinator.register_capability("observability.events", lambda: ["from:capability"])
    for contribution in (["from:list"], "from:string", {"from:dict": 1}, 7, ["from:mixed", 8]):
        logs.coordinator.register_contributor("observability.events", "tool", lambda found=contribution: found)
    await logs.mount()

    with caplog.at_level(logging.WARNING):
        await logs.ready()

    assert [event for event in handlers_of(logs.coordinator) if event.startswith("from:")] == [
        "from:capability",
        "from:list",
        "from:string",
        "from:mixed",
    ]
    assert len([record for record in caplog.records if "skipped" in record.message]) == 3


async def test_without_auto_discover_nothing_is_collected(logs: Any) -> None:
    asked = []
    logs.coordinator.register_contributor("observability.events", "tool", lambda: asked.append(1) or ["cache:hit"])
    await logs.mount(auto_discover=False)

    await logs.ready()

    assert not asked
    assert "cache:hit" not in handlers_of(logs.coordinator)


async def test_stream_deltas_are_left_out_by_default_and_the_other_stream_events_are_not(logs: Any) -> None:
    await logs.mount(additional_events=STREAM_EVENTS)

    for event in STREAM_EVENTS:
        await logs.emit(event)

    assert logs.events() == ["llm:stream_block_start", "llm:stream_block_end", "llm:stream_aborted"]


async def test_an_empty_exclude_list_logs_everything(logs: Any) -> None:
    await logs.mount(additional_events=STREAM_EVENTS, exclude_events=[])

    for event in STREAM_EVENTS:
        await logs.emit(event)

    assert logs.events() == STREAM_EVENTS


@pytest.mark.parametrize(
    ("glob", "excluded"),
    [
        ("x:?", ["x:a", "x:A"]),
        ("x:[ab]", ["x:a"]),
        ("x:*", ["x:a", "x:A", "x:ab"]),
        ("X:*", []),
    ],
)
async def test_exclude_globs_know_star_question_mark_and_sets_and_the_case(
    logs: Any, glob: str, excluded: list[str]
) -> None:
    events = ["x:a", "x:A", "x:ab"]
    await logs.mount(additional_events=events, exclude_events=[glob])

    for event in events:
        await logs.emit(event)

    assert logs.events() == [event for event in events if event not in excluded]


async def test_a_handler_called_with_an_excluded_event_writes_nothing(logs: Any) -> None:
    registered: dict[str, Any] = {}
    logs.coordinator.hooks.register = lambda event, handler, **_: registered.setdefault(event, handler)
    await logs.mount()

    result = await registered["tool:pre"]("llm:stream_text_delta", {"session_id": "s"})

    assert result.action == "continue"
    assert logs.records("s") == []


async def test_enabled_events_limits_what_is_logged_also_among_declared_events(logs: Any) -> None:
    logs.coordinator.register_contributor("observability.events", "tool", lambda: ["tool:extra", "cache:hit"])
    await logs.mount(enabled_events=["tool:*"])
    await logs.ready()

    assert set(handlers_of(logs.coordinator)) == {"tool:pre", "tool:post", "tool:error", "tool:extra"}


async def test_session_end_then_cleanup_writes_one_record_and_leaves_no_handler(logs: Any) -> None:
    await logs.mount()

    await logs.emit("session:end")
    logs.cleanup()
    await logs.emit("session:end")

    assert logs.events() == ["session:end"]
    assert handlers_of(logs.coordinator) == {}


async def test_after_cleanup_session_end_is_still_written_and_later_events_are_not(logs: Any) -> None:
    await logs.mount()
    await logs.emit("prompt:submit")

    logs.cleanup()
    logs.cleanup()
    assert handlers_of(logs.coordinator) == {"session:end": ["hooks-logging"]}
    await logs.emit("prompt:submit")
    await logs.emit("session:end")
    await logs.emit("session:end")

    assert logs.events() == ["prompt:submit", "session:end"]
    assert handlers_of(logs.coordinator) == {}


async def test_two_coordinators_with_different_templates_each_log_only_their_session(
    logs: Any, other_logs: Any
) -> None:
    other_logs.coordinator.register_contributor("observability.events", "tool", lambda: ["only:other"])
    await logs.mount()
    await other_logs.mount()
    await other_logs.ready()
    await logs.ready()

    for session_logs, word in ((logs, "one"), (other_logs, "two"), (logs, "three")):
        await session_logs.emit("prompt:submit", prompt=word)
    await logs.emit("only:other")

    assert [record["data"]["prompt"] for record in logs.records()] == ["one", "three"]
    assert [record["data"]["prompt"] for record in other_logs.records()] == ["two"]


async def test_one_coordinator_can_have_two_logs(logs: Any, other_logs: Any) -> None:
    other_logs.coordinator = logs.coordinator
    logs.coordinator.register_contributor("observability.events", "tool", lambda: ["cache:hit"])
    await logs.mount()
    await other_logs.mount()
    await logs.ready()

    await logs.emit("cache:hit")

    assert logs.events() == other_logs.events() == ["cache:hit"]


async def test_a_session_that_nobody_holds_is_forgotten() -> None:
    import gc
    import weakref

    coordinator = MockCoordinator()
    await mount(coordinator, {})
    await on_session_ready(coordinator)
    gone = weakref.ref(coordinator)

    del coordinator
    gc.collect()

    assert gone() is None
