"""Emitting events from a provider: through a registry, a stub, or nothing at all."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amplifier_core import HookRegistry
from amplifier_core.testing import EventRecorder, MockCoordinator
from amplifier_kit.providers.stream import ProviderEvents, StreamEvents


@pytest.mark.parametrize("coordinator", [None, object(), SimpleNamespace(hooks=None), SimpleNamespace(hooks="x")])
async def test_without_hooks_nothing_is_emitted_and_nobody_listens(coordinator: Any) -> None:
    events = ProviderEvents(coordinator)

    await events.emit("llm:request", {})

    assert (events.hooks, events.listens("llm:request")) == (None, False)


async def test_anything_that_emits_stands_in_for_a_registry() -> None:
    recorder = EventRecorder()
    events = ProviderEvents(SimpleNamespace(hooks=recorder))

    await events.emit("llm:request", {"a": 1})

    assert recorder.events == [("llm:request", {"a": 1})]
    assert events.listens("llm:response")


async def test_listening_follows_the_registry() -> None:
    coordinator = MockCoordinator()
    events = ProviderEvents(coordinator)
    before = events.listens("llm:request")
    coordinator.hooks.register("llm:request", AsyncMock())

    assert (before, events.listens("llm:request")) == (False, True)
    assert ProviderEvents(SimpleNamespace(hooks=AsyncMock())).listens("llm:request")


async def test_a_registry_that_cannot_say_who_listens_counts_as_heard() -> None:
    class Unsure(HookRegistry):
        def has_handlers(self, event: str) -> bool:
            raise RuntimeError("no")

    assert ProviderEvents(SimpleNamespace(hooks=Unsure())).listens("llm:request")


async def test_a_registry_that_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(HookRegistry):
        def emit(self, event: str, data: dict[str, Any]) -> Any:
            raise RuntimeError("no")

    await ProviderEvents(SimpleNamespace(hooks=Broken())).emit("llm:request", {})

    assert [record.levelname for record in caplog.records] == ["WARNING"]


class Stream:
    """A stream and what was heard of it."""

    def __init__(self) -> None:
        recorder = EventRecorder()
        self.heard = recorder.events
        self.events = StreamEvents(ProviderEvents(SimpleNamespace(hooks=recorder)))

    def brief(self) -> list[str]:
        """Return each event as its last word, its block, and its text."""
        return [
            " ".join(map(str, (event.rpartition("_")[2], data.get("block_index", ""), data.get("text", "")))).strip()
            for event, data in self.heard
        ]


async def test_blocks_have_one_start_and_one_end_and_count_their_fragments() -> None:
    one = Stream()
    async with one.events as stream:
        await stream.start(0, "thinking")
        await stream.delta(0, "a")
        await stream.start(1, "tool_use", name="echo")
        await stream.delta(0, "")
        await stream.delta(0, "b")
        await stream.end(0)
        await stream.end(0)

    assert one.brief() == ["start 0", "delta 0 a", "start 1", "delta 0 b", "end 0", "end 1"]
    assert [data["sequence"] for event, data in one.heard if event.endswith("delta")] == [0, 1]
    assert one.heard[2][1] == {
        "request_id": one.events.request_id,
        "block_index": 1,
        "block_type": "tool_use",
        "name": "echo",
    }
    assert {data["request_id"] for _, data in one.heard} == {one.events.request_id}


async def test_a_fragment_of_no_open_block_is_not_told() -> None:
    stream = Stream()
    async with stream.events as told:
        await told.delta(0, "before its start")
        await told.start(0, "text")
        await told.end(0)
        await told.delta(0, "after its end")

    assert stream.brief() == ["start 0", "end 0"]


async def test_fed_text_finds_the_boundaries_between_blocks() -> None:
    one = Stream()
    async with one.events as stream:
        await stream.feed("thinking", "hm")
        await stream.feed("text", "")
        await stream.feed("text", "a")
        await stream.feed("text", "b")
        await stream.call("echo")
        await stream.feed("text", "c")

    expected = ["start 0", "delta 0 hm", "end 0", "start 1", "delta 1 a", "delta 1 b", "end 1", "start 2", "end 2"]
    assert one.brief() == [*expected, "start 3", "delta 3 c", "end 3"]


async def failing(stream: StreamEvents, error: Exception, text: str) -> None:
    async with stream:
        await stream.start(0, "text")
        await stream.delta(0, text)
        raise error


async def test_a_failure_after_a_fragment_is_announced_under_the_name_of_the_original() -> None:
    one, translated = Stream(), ValueError("translated")
    translated.__cause__ = ConnectionResetError("cut")

    with pytest.raises(ValueError, match="translated"):
        await failing(one.events, translated, "a")

    assert one.brief()[-2:] == ["end 0", "aborted"]
    assert one.heard[-1][1]["error"] == {"type": "ConnectionResetError", "msg": "cut"}


async def test_a_failure_before_any_fragment_is_not_announced() -> None:
    one = Stream()

    with pytest.raises(ValueError, match="early"):
        await failing(one.events, ValueError("early"), "")

    assert one.brief() == ["start 0", "end 0"]
