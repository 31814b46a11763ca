"""loop-streaming: how answers come piece by piece, from providers that stream and from those that do not."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_loop_streaming import StreamingOrchestrator
from turns import Stage, answer, calling, echo, orphans, unpaired

from amplifier_core import RateLimitError, StreamError, TextBlock, ThinkingBlock
from amplifier_core.content_models import TextContent
from amplifier_core.testing import MockProvider


@pytest.fixture
def orchestrator() -> StreamingOrchestrator:
    return StreamingOrchestrator({})


class StreamingProvider(MockProvider):
    """Streams chunks: one list for each call; an exception in a list is raised at that place."""

    def __init__(self, *calls: list[Any]) -> None:
        super().__init__()
        self._calls = list(calls)
        self.options: list[dict[str, Any]] = []
        self.closed = 0

    async def complete(self, request: Any, **options: Any) -> Any:
        raise AssertionError("a provider that streams is not asked for the whole")

    async def stream(self, request: Any, **options: Any) -> AsyncIterator[dict[str, Any]]:
        self.call_count += 1
        self.requests.append(request)
        self.options.append(options)
        try:
            for chunk in self._calls.pop(0):
                if isinstance(chunk, BaseException):
                    raise chunk
                if callable(chunk):
                    await chunk()
                else:
                    yield chunk
        finally:
            self.closed += 1


async def read(stage: Stage, orchestrator: StreamingOrchestrator) -> list[str]:
    return [fragment async for fragment in orchestrator.execute_stream("Hello", **stage.inputs())]


class TestWholeAnswers:
    @pytest.mark.parametrize("text", ["a  b\n c", " lead", "trail \n", "\n\n", "one", "a\t\u00a0b\r\nc", "   "])
    async def test_an_answer_is_the_same_when_its_pieces_are_joined(
        self, orchestrator: StreamingOrchestrator, text: str
    ) -> None:
        assert "".join(await read(Stage([answer(text)]), orchestrator)) == text
        assert await Stage([answer(text)]).run(orchestrator) == text

    async def test_pieces_are_words_blanks_and_line_ends(self, orchestrator: StreamingOrchestrator) -> None:
        assert await read(Stage([answer("a  b\n c")]), orchestrator) == ["a", "  ", "b", "\n", " ", "c"]

    @pytest.mark.parametrize("as_stream", [True, False])
    async def test_without_a_delay_nothing_sleeps(
        self, orchestrator: StreamingOrchestrator, as_stream: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def forbidden(*_: Any) -> None:
            raise AssertionError("it sleeps")

        stage = Stage([answer("a  b\n c")])
        monkeypatch.setattr(asyncio, "sleep", forbidden)

        assert "".join(await read(stage, orchestrator) if as_stream else [await stage.run(orchestrator)]) == "a  b\n c"

    @pytest.mark.parametrize("as_stream", [True, False])
    async def test_with_a_delay_each_word_is_followed_by_a_pause(
        self, as_stream: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slept, sleep = list[float](), asyncio.sleep

        async def spying(delay_s: float, *rest: Any) -> Any:
            slept.append(delay_s)
            return await sleep(0)

        stage, orchestrator = Stage([answer("a  b\n c")]), StreamingOrchestrator({"stream_delay": 0.25})
        monkeypatch.setattr(asyncio, "sleep", spying)

        assert "".join(await read(stage, orchestrator) if as_stream else [await stage.run(orchestrator)]) == "a  b\n c"

        assert slept == [0.25] * 3

    async def test_a_long_answer_lets_others_run_meanwhile(self, orchestrator: StreamingOrchestrator) -> None:
        ticks: list[int] = []

        async def tick() -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0)

        other = asyncio.create_task(tick())
        fragments = await read(Stage([answer("word " * 5000)]), orchestrator)
        other.cancel()

        assert len(fragments) == 10_000
        assert len(ticks) > 10

    async def test_the_text_of_a_response_comes_before_its_blocks(self, orchestrator: StreamingOrchestrator) -> None:
        response = answer("from the block", text="from the response")

        assert await Stage([response]).run(orchestrator) == "from the response"

    async def test_an_empty_text_does_not(self, orchestrator: StreamingOrchestrator) -> None:
        assert await Stage([answer("from the block", text="")]).run(orchestrator) == "from the block"


class TestShapes:
    async def test_the_first_thought_is_stored_a_second_time(self, orchestrator: StreamingOrchestrator) -> None:
        content = [ThinkingBlock(thinking="first", signature="s"), ThinkingBlock(thinking="second")]
        stage = Stage([answer().model_copy(update={"content": [*content, TextBlock(text="done")]})])

        await stage.run(orchestrator)

        assert stage.messages[-1]["thinking_block"]["thinking"] == "first"
        assert stage.messages[-1]["thinking_block"]["signature"] == "s"

    async def test_tool_messages_carry_the_name(self, orchestrator: StreamingOrchestrator) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])

        await stage.run(orchestrator)

        assert stage.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "{}", "name": "echo"}

    async def test_a_block_for_display_shows_what_the_vendor_sent(self, orchestrator: StreamingOrchestrator) -> None:
        blocks = [TextContent(text="x", raw={"id": 1, "at": object}), TextContent(text="y")]
        stage = Stage([answer(content_blocks=blocks)]).record("content_block:start")

        await stage.run(orchestrator)

        first, second = stage.payloads("content_block:start")
        assert (first["metadata"]["id"], second["metadata"]) == (1, None)

    async def test_such_a_block_may_be_a_dict(self, orchestrator: StreamingOrchestrator) -> None:
        blocks = [{"type": "text", "text": "x", "raw": {"id": 1}}]
        stage = Stage([answer(content_blocks=blocks)]).record("content_block:start")

        await stage.run(orchestrator)

        assert stage.payload("content_block:start")["metadata"] == {"id": 1}

    async def test_a_block_of_the_content_has_no_such_thing(self, orchestrator: StreamingOrchestrator) -> None:
        stage = Stage([answer()]).record("content_block:start")

        await stage.run(orchestrator)

        assert "metadata" not in stage.payload("content_block:start")

    async def test_calls_are_parsed_by_the_provider(self, orchestrator: StreamingOrchestrator) -> None:
        stage = Stage([answer("Looking"), answer()], [echo()])
        parsed = iter([[{"id": "c1", "name": "echo"}], []])
        stage.provider.parse_tool_calls = lambda response: next(parsed)

        assert await stage.run(orchestrator) == "done"

        assert stage.messages[1]["tool_calls"] == [{"id": "c1", "tool": "echo", "arguments": {}}]

    async def test_a_provider_that_cannot_parse_gives_them_itself(self, orchestrator: StreamingOrchestrator) -> None:
        responses = iter([calling(("c1", "echo")), answer()])

        async def complete(request: Any, **_: Any) -> Any:
            return next(responses)

        stage = Stage([], [echo()], provider=SimpleNamespace(complete=complete))

        assert await stage.run(orchestrator) == "done"

        assert len(stage.results) == 1


class TestStreamingProviders:
    async def test_text_is_handed_on_as_it_arrives(self, orchestrator: StreamingOrchestrator) -> None:
        provider = StreamingProvider([{"content": "Good "}, {"content": "day", "block_type": "text"}, {"content": ""}])
        stage = Stage(provider=provider)

        assert await read(stage, orchestrator) == ["Good ", "day"]

        assert stage.messages[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Good day"}]}

    async def test_text_is_read_before_the_rest_has_come(self, orchestrator: StreamingOrchestrator) -> None:
        gate = asyncio.Event()
        provider = StreamingProvider([{"content": "early"}, gate.wait, {"content": " late"}])
        stream = orchestrator.execute_stream("Hello", **Stage(provider=provider).inputs())

        first = await anext(stream)
        gate.set()

        assert (first, [fragment async for fragment in stream]) == ("early", [" late"])

    async def test_tools_and_settings_go_to_the_provider(self) -> None:
        provider = StreamingProvider([{"content": "done"}])

        await Stage([], [echo()], provider=provider).run(StreamingOrchestrator({"extended_thinking": True}))

        (options,) = provider.options
        assert [tool.name for tool in options["tools"]] == ["echo"]
        assert options["extended_thinking"] is True

    async def test_a_turn_without_tools_gives_an_empty_list(self, orchestrator: StreamingOrchestrator) -> None:
        provider = StreamingProvider([{"content": "done"}])

        await Stage(provider=provider).run(orchestrator)

        assert provider.options == [{"tools": []}]

    async def test_calls_in_chunks_run_like_any_others(self, orchestrator: StreamingOrchestrator) -> None:
        first = [
            {"content": "Looking. "},
            {"tool_calls": [{"id": "c1", "name": "echo", "arguments": '{"n": 1}'}]},
            {"tool_calls": [{"id": "c2", "name": "echo"}], "usage": {"total_tokens": 7}},
        ]
        provider = StreamingProvider(first, [{"content": "done"}])
        stage = Stage([], [echo()], provider=provider).record("provider:response")

        assert await stage.run(orchestrator) == "Looking. done"

        assert stage.results == ['{"n": 1}', "{}"]
        assert list(orphans(stage.messages)) == []
        first_response, second_response = stage.payloads("provider:response")
        assert (first_response["tool_calls"], first_response["usage"]) == (True, {"total_tokens": 7})
        assert second_response["response"]["content"] == [{"type": "text", "text": "done"}]

    async def test_a_call_that_comes_again_is_one_call(self, orchestrator: StreamingOrchestrator) -> None:
        call = {"id": "c1", "name": "echo", "arguments": ""}
        chunks = [{"tool_calls": [call]}, {"tool_calls": [{**call, "arguments": '{"n": 1}'}]}]
        stage = Stage([], [echo()], provider=StreamingProvider(chunks, [{"content": "done"}]))

        await stage.run(orchestrator)

        assert stage.results == ['{"n": 1}']

    async def test_thoughts_are_stored_and_not_said(self, orchestrator: StreamingOrchestrator) -> None:
        chunks = [
            {"content": "let me ", "block_type": "thinking"},
            {"content": "see", "block_type": "thinking"},
            {"content": "done"},
            {"content": '{"par', "block_type": "tool_input"},
        ]
        stage = Stage(provider=StreamingProvider(chunks))

        assert await read(stage, orchestrator) == ["done"]

        thinking = {"type": "thinking", "thinking": "let me see"}
        assert stage.messages[-1]["content"] == [thinking, {"type": "text", "text": "done"}]
        assert stage.messages[-1]["thinking_block"] == thinking

    async def test_every_piece_is_announced(self, orchestrator: StreamingOrchestrator) -> None:
        chunks = [
            {"content": "hm", "block_type": "thinking"},
            {"content": "do"},
            {"content": "ne", "usage": {"total_tokens": 3}},
            {"metadata": {"id": "r1"}},
        ]
        stage = Stage(provider=StreamingProvider(chunks)).record()

        await stage.run(orchestrator)

        names = [name.removeprefix("content_block:") for name in stage.event_names if name.startswith("content_block:")]
        assert names == ["start", "delta", "end", "start", "delta", "delta", "end"]
        deltas = stage.payloads("content_block:delta")
        assert [data["delta"] for data in deltas] == ["hm", "do", "ne"]
        assert [(data["block_type"], data["block_index"], data["sequence"]) for data in deltas] == [
            ("thinking", 0, 0),
            ("text", 1, 1),
            ("text", 1, 2),
        ]
        first_end, second_end = stage.payloads("content_block:end")
        assert first_end["block"] == {"type": "thinking", "thinking": "hm"}
        assert (second_end["block"], second_end["usage"]) == ({"type": "text", "text": "done"}, {"total_tokens": 3})
        assert stage.messages[-1]["metadata"] == {"id": "r1"}

    async def test_a_stream_may_be_handed_out_by_a_coroutine(self, orchestrator: StreamingOrchestrator) -> None:
        provider = StreamingProvider([{"content": "done"}])
        stream = provider.stream

        async def open_stream(request: Any, **options: Any) -> Any:
            return stream(request, **options)

        provider.stream = open_stream  # type: ignore[assignment,method-assign]

        assert await Stage(provider=provider).run(orchestrator) == "done"

    async def test_a_provider_whose_stream_is_no_method_is_asked_for_the_whole(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        stage = Stage([answer()])
        stage.provider.stream = True

        assert await stage.run(orchestrator) == "done"

    async def test_an_empty_stream_counts_as_an_empty_response(self, orchestrator: StreamingOrchestrator) -> None:
        provider = StreamingProvider([], [{"metadata": {"id": "r1"}}], [{"content": "done"}])

        assert await Stage(provider=provider).run(orchestrator) == "done"


class TestBrokenStreams:
    async def test_an_error_on_the_way_is_announced_and_raised_and_the_text_so_far_kept(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        provider = StreamingProvider([{"content": "half "}, {"content": "an ans"}, StreamError("it broke off")])
        stage = Stage(provider=provider).record()

        with pytest.raises(StreamError, match="it broke off"):
            await stage.run(orchestrator)

        error = {"provider": "mock", "error": {"type": "StreamError", "msg": "it broke off"}, "retryable": True}
        assert stage.payload("provider:error").items() >= error.items()
        assert stage.payload("execution:end").items() >= {"response": "half an ans", "status": "error"}.items()
        assert list(unpaired(stage.events)) == []
        assert provider.closed == 1

    async def test_another_provider_is_not_asked_once_something_was_said(self) -> None:
        stage = Stage(provider=StreamingProvider([{"content": "half"}, StreamError("it broke off")]))
        stage.providers["other"] = MockProvider(["whole"])

        with pytest.raises(StreamError):
            await stage.run(StreamingOrchestrator({"provider_failover": True}))

    async def test_before_that_it_is(self) -> None:
        stage = Stage(provider=StreamingProvider([RateLimitError("busy")]))
        stage.providers["other"] = MockProvider(["whole"])

        assert await stage.run(StreamingOrchestrator({"provider_failover": True})) == "whole"

    async def test_an_immediate_cancellation_between_chunks_stores_what_was_said(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        provider = StreamingProvider([{"content": "half "}, {"content": "an answer"}])
        stage = Stage(provider=provider).record()
        token = stage.coordinator.cancellation  # type: ignore[union-attr]
        fragments = []

        async for fragment in orchestrator.execute_stream("Hello", **stage.inputs()):
            fragments.append(fragment)
            token.request_immediate()

        assert fragments == ["half "]
        assert stage.messages[-1] == {"role": "assistant", "content": "half "}
        assert provider.closed == 1
        assert stage.payload("cancel:requested")["state"] == "immediate"
        assert stage.payload("execution:end").items() >= {"response": "half ", "status": "cancelled"}.items()
        assert len(stage.payloads("provider:response")) == 1
        assert list(unpaired(stage.events)) == []

    async def test_a_cancelled_task_stores_what_was_said_and_closes_the_stream(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        started, never = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            started.set()
            await never.wait()

        provider = StreamingProvider([{"content": "half "}, hang])
        stage = Stage(provider=provider).record()
        task = asyncio.create_task(stage.run(orchestrator))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert stage.messages[-1] == {"role": "assistant", "content": "half "}
        assert provider.closed == 1
        assert stage.payload("execution:end").items() >= {"response": "half ", "status": "cancelled"}.items()
        assert list(unpaired(stage.events)) == []

    async def test_a_reader_that_leaves_closes_the_stream_at_once(self, orchestrator: StreamingOrchestrator) -> None:
        provider = StreamingProvider([{"content": "half "}, {"content": "an answer"}])
        stage = Stage(provider=provider).record()

        stream = orchestrator.execute_stream("Hello", **stage.inputs())
        await anext(stream)
        await stream.aclose()

        assert provider.closed == 1
        assert stage.messages[-1] == {"role": "assistant", "content": "half "}
        assert stage.payload("execution:end")["status"] == "cancelled"

    async def test_a_stream_that_cannot_be_closed_spoils_nothing(self, orchestrator: StreamingOrchestrator) -> None:
        class Chunks:
            def __init__(self) -> None:
                self._left = [{"content": "done"}]

            def __aiter__(self) -> Any:
                return self

            async def __anext__(self) -> Any:
                if not self._left:
                    raise StopAsyncIteration
                return self._left.pop()

            async def aclose(self) -> None:
                raise OSError("already closed")

        provider = SimpleNamespace(stream=lambda request, **options: Chunks())

        assert await Stage(provider=provider).run(orchestrator) == "done"
