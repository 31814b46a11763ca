"""The events of a turn are the same for every orchestrator: which, with what in them, in pairs, once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from module_folders import folders_of_type
from turns import FunctionTool, Stage, answer, calling, echo, mounted, unpaired

from amplifier_core import (
    ChatResponse,
    HookRegistry,
    HookResult,
    RateLimitError,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    Usage,
)
from amplifier_core.content_models import TextContent, ThinkingContent
from amplifier_core.testing import EventRecorder


@pytest.fixture(params=folders_of_type("orchestrator"), ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
async def orchestrator(folder: Path) -> Any:
    return await mounted(folder)


def fail(error: BaseException) -> Callable[[Any], Any]:
    def function(_: Any) -> Any:
        raise error

    return function


async def outcome_of(stage: Stage, orchestrator: Any) -> Any:
    """Return what a turn returns or raises."""
    try:
        return await stage.run(orchestrator)
    except BaseException as exc:  # noqa: BLE001 - the test looks at it
        return exc


class TestPayloads:
    async def test_a_turn_with_a_tool_tells_everything_about_itself(self, orchestrator: Any, folder: Path) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()]).record()
        stage.provider.default_model = "mock-1"

        await stage.run(orchestrator)

        assert stage.payload("prompt:submit")["prompt"] == "Hello"
        assert stage.payload("execution:start")["prompt"] == "Hello"
        first, second = stage.payloads("provider:request")
        assert (first["provider"], first["model"]) == ("mock", "mock-1")
        assert second["iteration"] == first["iteration"] + 1
        assert "max_reached" not in first
        first, second = stage.payloads("provider:response")
        assert (first["tool_calls"], second["tool_calls"]) == (True, False)
        assert (first["finish_reason"], second["finish_reason"]) == ("tool_use", "stop")
        assert first["usage"] is None
        assert second["usage"]["total_tokens"] == 3
        assert first["response"]["tool_calls"] == [{"id": "c1", "tool": "echo", "arguments": {"n": 1}}]
        assert second["response"]["content"][0]["text"] == "done"
        asked, told = stage.payload("tool:pre"), stage.payload("tool:post")
        shared = {"tool_name": "echo", "tool_call_id": "c1", "tool_input": {"n": 1}}
        assert asked.items() >= shared.items()
        assert told.items() >= shared.items()
        assert told["result"] == told["tool_result"] == {"success": True, "output": {"n": 1}, "error": None}
        assert told["parallel_group_id"] == asked["parallel_group_id"]
        assert told["duration_ms"] >= 0
        assert stage.payload("prompt:complete").items() >= {"response_preview": "done", "length": 4}.items()
        complete = {"orchestrator": folder.name, "turn_count": 2, "status": "success"}
        assert stage.payload("orchestrator:complete").items() >= complete.items()
        assert stage.payload("execution:end").items() >= {"response": "done", "status": "completed"}.items()

    async def test_the_preview_of_a_long_answer_is_cut(self, orchestrator: Any) -> None:
        stage = Stage([answer("x" * 500)]).record("prompt:complete")

        await stage.run(orchestrator)

        assert (
            len(stage.payload("prompt:complete")["response_preview"]),
            stage.payload("prompt:complete")["length"],
        ) == (
            200,
            500,
        )

    async def test_the_messages_of_a_request_are_the_contexts_own_list(self, orchestrator: Any) -> None:
        view = [{"role": "user", "content": "Hello"}]

        class Context:
            async def add_message(self, message: dict[str, Any]) -> None: ...

            async def get_messages_for_request(self, token_budget: Any = None, provider: Any = None) -> Any:
                return view

        stage = Stage([answer()], context=Context()).record("provider:request")

        await stage.run(orchestrator)

        assert stage.payload("provider:request")["messages"] is view

    async def test_a_failed_call_of_a_known_kind_says_whether_to_try_again(self, orchestrator: Any) -> None:
        stage = Stage([RateLimitError("slow down", status_code=429)]).record("provider:error")

        await outcome_of(stage, orchestrator)

        error = {"provider": "mock", "error": {"type": "RateLimitError", "msg": "slow down"}}
        assert stage.payload("provider:error").items() >= {**error, "retryable": True, "status_code": 429}.items()

    async def test_any_other_error_says_neither(self, orchestrator: Any) -> None:
        stage = Stage([ValueError("broken")]).record("provider:error")

        await outcome_of(stage, orchestrator)

        assert stage.payload("provider:error")["error"] == {"type": "ValueError", "msg": "broken"}
        assert not {"retryable", "status_code"} & stage.payload("provider:error").keys()

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (("c1", "missing"), "RuntimeError"),
            (("c1", "broken"), "OSError"),
        ],
    )
    async def test_a_failed_tool_call_names_the_error(self, orchestrator: Any, call: Any, error: str) -> None:
        stage = Stage([calling(call), answer()], [FunctionTool("broken", fail(OSError("no disk")))]).record()

        assert await stage.run(orchestrator) == "done"

        payload = stage.payload("tool:error")
        assert (payload["tool_name"], payload["tool_call_id"], payload["error"]["type"]) == (call[1], "c1", error)
        assert payload["parallel_group_id"]

    async def test_each_response_is_a_group_of_its_own(self, orchestrator: Any) -> None:
        responses = [calling(("c1", "echo"), ("c2", "echo")), calling(("c3", "echo")), answer()]
        stage = Stage(responses, [echo()]).record("tool:pre")

        await stage.run(orchestrator)

        one, two, three = [data["parallel_group_id"] for data in stage.payloads("tool:pre")]
        assert one == two != three


class TestBlocks:
    async def test_the_blocks_of_the_content_are_announced_one_by_one(self, orchestrator: Any) -> None:
        content = [ThinkingBlock(thinking="hm", signature="s"), TextBlock(text="done")]
        usage = Usage(input_tokens=1, output_tokens=2, total_tokens=3)
        stage = Stage([ChatResponse(content=content, usage=usage)]).record("content_block:start", "content_block:end")

        await stage.run(orchestrator)

        assert stage.event_names == ["content_block:start", "content_block:end"] * 2
        starts, ends = stage.payloads("content_block:start"), stage.payloads("content_block:end")
        assert [(data["block_type"], data["block_index"], data["total_blocks"]) for data in starts] == [
            ("thinking", 0, 2),
            ("text", 1, 2),
        ]
        assert [data["block"]["type"] for data in ends] == ["thinking", "text"]
        assert ends[0]["block"]["signature"] == "s"
        assert all(data["usage"]["total_tokens"] == 3 for data in ends)

    async def test_blocks_made_for_display_come_first(self, orchestrator: Any) -> None:
        blocks = [ThinkingContent(text="hm"), TextContent(text="shown")]
        response = ChatResponse(content=[TextBlock(text="done")], content_blocks=blocks)
        stage = Stage([response]).record("content_block:start", "content_block:end")

        assert await stage.run(orchestrator) == "done"

        assert [data["block_type"] for data in stage.payloads("content_block:start")] == ["thinking", "text"]
        assert [data["block"] for data in stage.payloads("content_block:end")] == [
            {"type": "thinking", "text": "hm"},
            {"type": "text", "text": "shown"},
        ]
        assert all("usage" not in data for data in stage.payloads("content_block:end"))

    async def test_blocks_are_announced_before_any_tool_runs(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo"), text="Looking"), answer()], [echo()]).record()

        await stage.run(orchestrator)

        names = stage.event_names
        assert names.index("provider:response") < names.index("content_block:start") < names.index("tool:pre")


class TestWhatCosts:
    async def test_without_listeners_costly_parts_are_not_built_but_every_event_is_emitted(
        self, orchestrator: Any
    ) -> None:
        class Deaf(EventRecorder):
            def has_handlers(self, event: str) -> bool:
                return False

        stage, recorder = Stage([calling(("c1", "echo")), answer()], [echo()]), Deaf()

        await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, recorder)

        told = dict(recorder.events)
        assert "response" not in told["provider:response"]
        assert "block" not in told["content_block:end"]
        assert told["tool:post"]["result"] is None
        assert {"prompt:submit", "execution:start", "provider:request", "tool:pre", "execution:end"} <= told.keys()

    async def test_a_registry_that_cannot_tell_counts_as_listening(self, orchestrator: Any) -> None:
        stage, recorder = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()]), EventRecorder()

        await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, recorder)

        told = dict(recorder.events)
        assert told["provider:response"]["response"]["content"]
        assert told["content_block:end"]["block"]
        assert told["tool:post"]["result"]["output"] == {"n": 1}

    async def test_a_handler_registered_in_the_middle_of_a_turn_hears_what_follows(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        stage.on("tool:pre", lambda data: stage.record("tool:post", "execution:end") and None)

        await stage.run(orchestrator)

        assert stage.event_names == ["tool:post", "execution:end"]

    async def test_a_registry_that_somebody_watches_sees_every_event(self, orchestrator: Any) -> None:
        hooks, seen = HookRegistry(), list[str]()
        emit = hooks.emit

        def watched(event: str, data: dict[str, Any]) -> Any:
            seen.append(event)
            return emit(event, data)

        hooks.emit = watched  # type: ignore[method-assign]
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])

        await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, hooks)

        assert {"provider:request", "provider:response", "tool:pre", "tool:post", "orchestrator:complete"} <= {*seen}


class SystemExitInDisguise(BaseException):
    """Like `SystemExit`, which would end the test run."""


EXITS: dict[str, tuple[Callable[[], Stage], str, str | None]] = {
    "an answer": (lambda: Stage([answer()]), "success", "completed"),
    "no text": (lambda: Stage([ChatResponse(content=[ThinkingBlock(thinking="hm")])]), "incomplete", "completed"),
    "nothing at all": (lambda: Stage([ChatResponse(content=[])] * 9), "incomplete", "completed"),
    "a denied prompt": (
        lambda: Stage([answer()]).on("prompt:submit", HookResult(action="deny")),
        "incomplete",
        None,
    ),
    "a denied request": (
        lambda: Stage([answer()]).on("provider:request", HookResult(action="deny")),
        "incomplete",
        "completed",
    ),
    "a provider that fails": (lambda: Stage([OSError("down")]), "error", "error"),
    "a context that fails": (
        lambda: Stage([answer()], context=SimpleNamespace(add_message=fail(OSError("full")))),
        "error",
        "error",
    ),
    "a tool that is cancelled": (
        lambda: Stage([calling(("c1", "t"))], [FunctionTool("t", fail(asyncio.CancelledError()))]),
        "cancelled",
        "cancelled",
    ),
    "a tool that leaves the program": (
        lambda: Stage([calling(("c1", "t"))], [FunctionTool("t", fail(SystemExitInDisguise()))]),
        "error",
        "error",
    ),
}


class TestEveryExit:
    """`execution:*` in pairs and `orchestrator:complete` once, however a turn ends."""

    @pytest.mark.parametrize("case", EXITS)
    async def test_the_last_events_come_once_with_the_right_status(self, orchestrator: Any, case: str) -> None:
        make, status, execution_status = EXITS[case]
        stage = make().record()

        await outcome_of(stage, orchestrator)

        assert list(unpaired(stage.events)) == []
        assert stage.payload("orchestrator:complete")["status"] == status
        if execution_status is None:
            assert "execution:end" not in stage.event_names
        else:
            assert stage.payload("execution:end")["status"] == execution_status

    async def test_no_provider_is_an_error_after_the_prompt_was_stored(self, orchestrator: Any) -> None:
        stage = Stage().record()
        stage.providers = {}

        outcome = await outcome_of(stage, orchestrator)

        assert "No provider" in str(outcome)
        assert stage.context.roles == ["user"]
        assert stage.payload("execution:end")["status"] == "error"
        assert stage.payload("orchestrator:complete")["turn_count"] == 0


class TestShapes:
    async def test_text_alone_is_returned_and_every_block_is_stored(self, orchestrator: Any) -> None:
        thinking = ThinkingBlock(thinking="hm", signature="sig", text="not for the user")
        stage = Stage([ChatResponse(content=[thinking, TextBlock(text="one"), TextBlock(text="two")])])

        assert await stage.run(orchestrator) == "one\n\ntwo"

        stored = stage.messages[-1]["content"]
        assert [block["type"] for block in stored] == ["thinking", "text", "text"]
        assert (stored[0]["signature"], stored[0]["text"]) == ("sig", "not for the user")

    async def test_blocks_may_be_dicts_and_enums(self, orchestrator: Any) -> None:
        content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "dict"}, TextContent(text="enum")]
        stage = Stage([SimpleNamespace(content=content, tool_calls=None)])  # type: ignore[list-item]

        assert await stage.run(orchestrator) == "dict\n\nenum"

        assert stage.messages[-1]["content"][1] == {"type": "text", "text": "dict"}
        assert stage.messages[-1]["content"][2] == {"type": "text", "text": "enum"}

    async def test_plain_text_content_is_stored_as_text(self, orchestrator: Any) -> None:
        stage = Stage([SimpleNamespace(content="plain", tool_calls=None)])  # type: ignore[list-item]

        assert await stage.run(orchestrator) == "plain"

        assert stage.messages[-1] == {"role": "assistant", "content": "plain"}

    async def test_the_metadata_of_a_response_is_stored_when_there_is_some(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer(metadata={"id": "r2"})], [echo()])

        await stage.run(orchestrator)

        assert "metadata" not in stage.messages[1]
        assert stage.messages[-1]["metadata"] == {"id": "r2"}

    async def test_images_in_a_result_reach_the_model(self, orchestrator: Any) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        result = ToolResult(output="a picture", content=[{"type": "text", "text": "look"}, image])
        stage = Stage([calling(("c1", "look")), answer()], [FunctionTool("look", lambda input: result)]).record()

        await stage.run(orchestrator)

        assert stage.results == [[{"type": "text", "text": "look"}, image]]
        assert [block.type for block in stage.provider.requests[1].messages[-1].content] == ["text", "image"]
        assert "AAAA" not in str(stage.payload("tool:post"))

    @pytest.mark.parametrize(("returned", "stored"), [(None, "Success"), ("text", "text"), ({"a": 1}, '{"a": 1}')])
    async def test_a_tool_may_return_anything(self, orchestrator: Any, returned: Any, stored: str) -> None:
        stage = Stage([calling(("c1", "t")), answer()], [FunctionTool("t", lambda input: returned)])

        await stage.run(orchestrator)

        assert stage.results == [stored]

    async def test_a_tool_that_changes_its_input_does_not_change_the_stored_call(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "t", {"n": 1})), answer()], [FunctionTool("t", lambda input: input.clear())])

        await stage.run(orchestrator)

        assert stage.messages[1]["tool_calls"][0]["arguments"] == {"n": 1}

    @pytest.mark.parametrize(
        "call",
        [
            {"id": "c1", "name": "echo", "arguments": {"n": 1}},
            {"id": "c1", "tool": "echo", "arguments": '{"n": 1}'},
            {"tool_call_id": "c1", "name": "echo", "input": {"n": 1}},
            {"id": "c1", "function": {"name": "echo", "arguments": '{"n": 1}'}},
            SimpleNamespace(id="c1", name="echo", arguments={"n": 1}),
        ],
    )
    async def test_calls_of_every_spelling_run(self, orchestrator: Any, call: Any) -> None:
        stage = Stage([SimpleNamespace(content=[], tool_calls=[call]), answer()], [echo()])  # type: ignore[list-item]

        await stage.run(orchestrator)

        assert stage.messages[1]["tool_calls"] == [{"id": "c1", "tool": "echo", "arguments": {"n": 1}}]
        assert stage.messages[2]["tool_call_id"] == "c1"
        assert stage.results == ['{"n": 1}']

    async def test_a_call_without_an_id_gets_one(self, orchestrator: Any) -> None:
        stage = Stage([SimpleNamespace(content="", tool_calls=[{"tool": "echo"}]), answer()], [echo()])  # type: ignore[list-item]

        await stage.run(orchestrator)

        (call,) = stage.messages[1]["tool_calls"]
        assert call["id"].startswith("call_")
        assert call["arguments"] == {}
        assert stage.messages[2]["tool_call_id"] == call["id"]
        assert stage.messages[1]["content"] == ""

    @pytest.mark.parametrize("arguments", ["{not json", "[1, 2]", "7", ["a"]])
    async def test_arguments_that_are_no_object_are_an_error_for_the_model(
        self, orchestrator: Any, arguments: Any
    ) -> None:
        call = {"id": "c1", "name": "echo", "arguments": arguments}
        stage = Stage([SimpleNamespace(content=[], tool_calls=[call]), answer()], [echo()]).record()  # type: ignore[list-item]

        assert await stage.run(orchestrator) == "done"

        assert stage.results[0].startswith("Error executing tool: invalid arguments: ")
        assert stage.tools["echo"].inputs == []
        assert stage.payload("tool:error")["tool_call_id"] == "c1"

    async def test_call_blocks_that_nobody_answers_are_not_stored(self, orchestrator: Any) -> None:
        response = calling(("c1", "echo"), ("c2", "echo"), text="Looking")
        response.tool_calls = response.tool_calls[:1] if response.tool_calls else None
        stage = Stage([response, answer()], [echo()])

        await stage.run(orchestrator)

        assert [block.get("id") for block in stage.messages[1]["content"]] == [None, "c1"]


class TestContexts:
    async def test_a_context_without_add_message_is_read_only(self, orchestrator: Any) -> None:
        context = SimpleNamespace(messages=[{"role": "system", "content": "Be brief."}])
        stage = Stage([calling(("c1", "echo")), answer()], [echo()], context=context)

        assert await stage.run(orchestrator) == "done"

        assert [message.content for message in stage.provider.requests[0].messages] == ["Be brief."]
        assert len(context.messages) == 1

    async def test_a_context_that_has_nothing_leaves_the_prompt(self, orchestrator: Any) -> None:
        stage = Stage([answer()], context=SimpleNamespace())

        assert await stage.run(orchestrator) == "done"

        assert [message.content for message in stage.provider.requests[0].messages] == ["Hello"]

    async def test_a_context_of_before_contexts_were_told_the_provider_is_asked_without_it(
        self, orchestrator: Any
    ) -> None:
        async def view(token_budget: int | None = None) -> list[dict[str, Any]]:
            return [{"role": "user", "content": "as ever"}]

        stage = Stage([answer()], context=SimpleNamespace(get_messages_for_request=view))

        assert await stage.run(orchestrator) == "done"

        assert [message.content for message in stage.provider.requests[0].messages] == ["as ever"]

    async def test_tools_that_are_mounted_in_the_middle_of_a_turn_are_offered(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "mount")), calling(("c2", "late")), answer()])
        late = echo("late")
        stage.tools["mount"] = FunctionTool("mount", lambda input: stage.tools.setdefault("late", late) and "mounted")

        await stage.run(orchestrator)

        assert [tool.name for tool in stage.provider.requests[1].tools] == ["mount", "late"]
        assert len(late.inputs) == 1

    async def test_a_turn_without_tools_offers_none(self, orchestrator: Any) -> None:
        stage = Stage([answer()])

        await stage.run(orchestrator)

        assert stage.provider.requests[0].tools is None

    async def test_settings_reach_the_provider_with_every_call(self, folder: Path) -> None:
        options: list[dict[str, Any]] = []
        stage = Stage([calling(("c1", "echo")), calling(("c2", "echo"))], [echo()])
        complete = stage.provider.complete

        async def spying(request: Any, **given: Any) -> Any:
            options.append(given)
            return await complete(request, **given)

        stage.provider.complete = spying
        config = {"reasoning_effort": "high", "timeout": 9, "extended_thinking": True, "max_iterations": 2}

        await stage.run(await mounted(folder, config))

        assert [(r.reasoning_effort, r.timeout) for r in stage.provider.requests] == [("high", 9.0)] * 3
        assert options == [{"extended_thinking": True}] * 3

    @pytest.mark.parametrize("config", [{}, {"reasoning_effort": "", "default_provider": "", "timeout": 0}])
    async def test_by_default_the_provider_is_asked_for_nothing_special(self, folder: Path, config: Any) -> None:
        orchestrator = await mounted(folder, config)
        options: list[dict[str, Any]] = []
        stage = Stage([])

        async def spying(request: Any, **given: Any) -> Any:
            options.append(given)
            assert (request.reasoning_effort, request.timeout) == (None, None)
            return answer()

        stage.provider.complete = spying

        await stage.run(orchestrator)

        assert options == [{}]
