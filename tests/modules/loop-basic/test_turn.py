"""loop-basic: the order of its events, what it stores, its limits and its errors."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_loop_basic import BasicOrchestrator
from turns import FunctionTool, ListContext, Stage, answer, calling, echo, texts_of

from amplifier_core import AmplifierSession, ChatResponse, HookResult, RateLimitError, TextBlock, ToolCallBlock
from amplifier_core.testing import EventRecorder, MockProvider

MODULES = Path(__file__).parents[3] / "modules"


@pytest.fixture
def orchestrator() -> BasicOrchestrator:
    return BasicOrchestrator({})


class TestOrder:
    async def test_a_simple_answer_has_its_nine_events_in_order(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage([answer()]).record()

        await stage.run(orchestrator)

        assert stage.event_names == [
            "prompt:submit",
            "execution:start",
            "provider:request",
            "provider:response",
            "content_block:start",
            "content_block:end",
            "prompt:complete",
            "orchestrator:complete",
            "execution:end",
        ]
        facts = {"orchestrator": "loop-basic", "turn_count": 1, "status": "success"}
        assert stage.payload("orchestrator:complete").items() >= facts.items()

    async def test_the_iteration_is_the_number_of_rounds_before(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage([calling(("c1", "echo")), calling(("c2", "echo")), answer()], [echo()]).record("provider:request")

        await stage.run(orchestrator)

        assert [data["iteration"] for data in stage.payloads("provider:request")] == [0, 1, 2]

    async def test_tool_messages_carry_no_name(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()])

        await stage.run(orchestrator)

        assert stage.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": '{"n": 1}'}

    async def test_the_answer_is_one_fragment_and_an_empty_one_none(self, orchestrator: BasicOrchestrator) -> None:
        full, empty = Stage([answer("two words")]), Stage([ChatResponse(content=[TextBlock(text="")])])

        fragments = [[f async for f in orchestrator.execute_stream("Hello", **s.inputs())] for s in (full, empty)]

        assert fragments == [["two words"], []]


class TestParallelTools:
    @staticmethod
    def stage() -> tuple[Stage, list[str]]:
        """Two calls of which the first waits for the second to end."""
        ended, second_done = list[str](), asyncio.Event()

        async def first(_: Any) -> str:
            await asyncio.wait_for(second_done.wait(), timeout=30)
            ended.append("first")
            return "first"

        async def second(_: Any) -> str:
            ended.append("second")
            second_done.set()
            return "second"

        tools = [FunctionTool("first", first), FunctionTool("second", second)]
        return Stage([calling(("c1", "first"), ("c2", "second")), answer()], tools).record(), ended

    async def test_calls_of_one_response_run_together_and_are_stored_in_call_order(
        self, orchestrator: BasicOrchestrator
    ) -> None:
        stage, ended = self.stage()

        await stage.run(orchestrator)

        assert ended == ["second", "first"]
        assert stage.results == ["first", "second"]
        names = [name for name in stage.event_names if name.startswith("tool:")]
        assert names == ["tool:pre", "tool:pre", "tool:post", "tool:post"]
        assert len({data["parallel_group_id"] for data in stage.payloads("tool:pre")}) == 1

    @pytest.mark.parametrize(
        ("config", "most"), [({"max_parallel_tools": 2}, 2), ({"parallel_tools": False}, 1), ({}, 5)]
    )
    async def test_how_many_run_at_once_is_bounded(self, config: dict[str, Any], most: int) -> None:
        running: set[str] = set()
        seen: list[int] = []

        async def count(input: dict[str, Any]) -> str:
            running.add(input["id"])
            seen.append(len(running))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.remove(input["id"])
            return str(input["id"])

        calls = calling(*((f"c{n}", "count", {"id": f"c{n}"}) for n in range(5)))
        stage = Stage([calls, answer()], [FunctionTool("count", count)])

        await stage.run(BasicOrchestrator(config))

        assert max(seen) == most
        assert stage.results == [f"c{n}" for n in range(5)]

    async def test_a_call_that_fails_leaves_its_siblings_alone(self, orchestrator: BasicOrchestrator) -> None:
        def fail(_: Any) -> None:
            raise OSError("no disk")

        tools = [FunctionTool("fail", fail), echo()]
        stage = Stage([calling(("c1", "fail"), ("c2", "missing"), ("c3", "echo", {"n": 3})), answer()], tools).record()

        assert await stage.run(orchestrator) == "done"

        assert stage.results == ["Error executing tool: no disk", "Error: Tool 'missing' not found", '{"n": 3}']
        assert [data["tool_call_id"] for data in stage.payloads("tool:post")] == ["c3"]
        errors = {data["tool_name"]: data["error"] for data in stage.payloads("tool:error")}
        assert errors == {
            "fail": {"type": "OSError", "msg": "no disk"},
            "missing": {"type": "RuntimeError", "msg": "Tool 'missing' not found"},
        }

    @pytest.mark.parametrize(("reason", "text"), [("read-only", "read-only"), (None, "no reason given")])
    async def test_a_denied_call_says_why(self, orchestrator: BasicOrchestrator, reason: Any, text: str) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        stage.on("tool:pre", HookResult(action="deny", reason=reason))

        await stage.run(orchestrator)

        assert stage.results == [f"Denied by hook: {text}"]


class TestParsing:
    async def test_calls_in_the_content_are_parsed_by_the_provider(self, orchestrator: BasicOrchestrator) -> None:
        block = ToolCallBlock(id="c1", name="echo", input={"n": 1})
        stage = Stage([ChatResponse(content=[block]), answer()], [echo()])
        stage.provider.parse_tool_calls = lambda response: [{"id": "c1", "name": "echo", "arguments": {"n": 1}}]

        assert await stage.run(orchestrator) == "done"

        assert stage.tools["echo"].inputs == [{"n": 1}]

    @pytest.mark.parametrize("parsed", [None, "nonsense", []])
    async def test_what_the_provider_cannot_parse_is_no_call(
        self, orchestrator: BasicOrchestrator, parsed: Any
    ) -> None:
        block = ToolCallBlock(id="c1", name="echo", input={})
        stage = Stage([ChatResponse(content=[TextBlock(text="Looking"), block])], [echo()])
        stage.provider.parse_tool_calls = lambda response: parsed

        assert await stage.run(orchestrator) == "Looking"

        assert [block["type"] for block in stage.messages[-1]["content"]] == ["text"]

    async def test_a_response_that_lists_its_calls_is_not_parsed_again(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        stage.provider.parse_tool_calls = None

        assert await stage.run(orchestrator) == "done"


class TestLimits:
    async def test_one_round_is_two_calls_and_the_second_asks_for_a_summary(self) -> None:
        stage = Stage([calling(("c1", "echo")), answer("a summary")], [echo()]).record("provider:request")

        text = await stage.run(BasicOrchestrator({"max_iterations": 1}))

        assert (text, stage.provider.call_count) == ("a summary", 2)
        reminder = stage.provider.requests[1].messages[-1]
        assert reminder.role == "user"
        assert reminder.content.startswith('<system-reminder source="orchestrator-loop-limit">')
        assert reminder.content.endswith("</system-reminder>")
        assert "limit" not in reminder.content.split(">", 1)[1].split("<", 1)[0]
        assert [tool.name for tool in stage.provider.requests[1].tools] == ["echo"]
        assert [data.get("max_reached") for data in stage.payloads("provider:request")] == [None, True]
        assert [message["role"] for message in stage.messages] == ["user", "assistant", "tool", "assistant"]
        assert "system-reminder" not in str(stage.messages)

    async def test_with_no_rounds_there_is_only_the_summary(self) -> None:
        stage = Stage([answer("a summary")], [echo()])

        assert await stage.run(BasicOrchestrator({"max_iterations": 0})) == "a summary"

        assert stage.provider.call_count == 1

    async def test_an_answer_in_the_last_round_needs_no_summary(self) -> None:
        stage = Stage([answer()])

        assert await stage.run(BasicOrchestrator({"max_iterations": 1})) == "done"

        assert stage.provider.call_count == 1

    async def test_calls_in_the_summary_are_neither_run_nor_stored(self) -> None:
        stage = Stage([calling(("c1", "echo")), calling(("c2", "echo"), text="So far")], [echo()])

        assert await stage.run(BasicOrchestrator({"max_iterations": 1})) == "So far"

        assert len(stage.tools["echo"].inputs) == 1
        assert "tool_calls" not in stage.messages[-1]
        assert [block["type"] for block in stage.messages[-1]["content"]] == ["text"]

    async def test_a_summary_that_fails_leaves_the_turn_incomplete(self) -> None:
        stage = Stage([calling(("c1", "echo")), RateLimitError("slow down")], [echo()]).record()

        assert await stage.run(BasicOrchestrator({"max_iterations": 1})) == ""

        assert stage.payload("provider:error")["error"]["type"] == "RateLimitError"
        assert stage.payload("orchestrator:complete")["status"] == "incomplete"
        assert stage.payload("execution:end")["status"] == "completed"

    async def test_a_summary_can_be_denied(self) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        stage.on("provider:request", lambda data: HookResult(action="deny") if data.get("max_reached") else None)

        assert await stage.run(BasicOrchestrator({"max_iterations": 1})) == "Operation denied: no reason given"

        assert stage.provider.call_count == 1

    async def test_the_reminder_counts_as_an_injection(self, caplog: pytest.LogCaptureFixture) -> None:
        stage = Stage([answer()])

        with caplog.at_level(logging.INFO):
            await stage.run(BasicOrchestrator({"max_iterations": 0}))

        (counted,) = [
            record.message for record in caplog.records if record.message.startswith("Hook context injection")
        ]
        assert "role=system" in counted
        assert "ephemeral=True" in counted

    @pytest.mark.parametrize(("config", "calls"), [({}, 3), ({"max_empty_responses": 1}, 1)])
    async def test_empty_responses_are_tolerated_for_a_while(
        self, config: dict[str, Any], calls: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage = Stage([ChatResponse(content=[])] * 9)

        assert await stage.run(BasicOrchestrator(config)) == ""

        assert stage.provider.call_count == calls
        assert len([record for record in caplog.records if "answered with nothing" in record.message]) == calls

    async def test_only_empty_responses_in_a_row_count(self, orchestrator: BasicOrchestrator) -> None:
        empty = ChatResponse(content=[])
        stage = Stage([empty, empty, calling(("c1", "echo")), empty, empty, answer()], [echo()])

        assert await stage.run(orchestrator) == "done"


class TestErrors:
    async def test_a_rate_limit_is_announced_once_and_raised_as_it_is(self, orchestrator: BasicOrchestrator) -> None:
        error = RateLimitError("slow down", status_code=429)
        stage = Stage([error]).record()

        with pytest.raises(RateLimitError) as raised:
            await stage.run(orchestrator)

        assert raised.value is error
        facts = {"retryable": True, "status_code": 429}
        assert stage.payload("provider:error").items() >= facts.items()
        assert [name for name in stage.event_names if name.endswith((":complete", ":end"))] == [
            "orchestrator:complete",
            "execution:end",
        ]

    async def test_a_response_nobody_can_read_is_the_providers_error(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage([ChatResponse(content=[ToolCallBlock(id="c1", name="echo", input={})])]).record("provider:error")

        def broken(response: Any) -> Any:
            raise KeyError("arguments")

        stage.provider.parse_tool_calls = broken

        with pytest.raises(KeyError):
            await stage.run(orchestrator)

        assert stage.payload("provider:error")["error"]["type"] == "KeyError"

    async def test_a_request_that_cannot_be_built_is_raised(self, orchestrator: BasicOrchestrator) -> None:
        class Broken:
            description = "A tool without a schema."

            @property
            def input_schema(self) -> Any:
                raise OSError("no schema")

        stage = Stage([answer()]).record("provider:error", "execution:end")
        stage.tools["broken"] = Broken()

        with pytest.raises(OSError, match="no schema"):
            await stage.run(orchestrator)

        assert stage.event_names == ["provider:error", "execution:end"]

    async def test_without_a_provider_the_error_says_so(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage()
        stage.providers = {}

        with pytest.raises(RuntimeError, match="No provider available"):
            await stage.run(orchestrator)

    async def test_a_provider_that_cannot_complete_is_named(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage()
        stage.providers = {"half": SimpleNamespace(name="half")}

        with pytest.raises(RuntimeError, match="'half'"):
            await stage.run(orchestrator)

    async def test_a_call_that_fails_outside_the_tool_is_answered_too(self, orchestrator: BasicOrchestrator) -> None:
        stage = Stage([calling(("c1", "strange")), answer()], [FunctionTool("strange", lambda input: "x")])
        stage.tools = Unlookable(stage.tools)

        assert await stage.run(orchestrator) == "done"

        assert stage.results == ["Error executing tool: the tools are gone"]


class Unlookable(dict[str, Any]):
    """Tools that can be listed but not looked up."""

    def get(self, key: Any, default: Any = None) -> Any:
        raise OSError("the tools are gone")


class TestSpeed:
    async def test_fifty_calls_read_each_stored_message_once_and_build_no_response_payload(
        self, orchestrator: BasicOrchestrator
    ) -> None:
        class Counted(dict[str, Any]):
            reads = 0

            def get(self, key: str, default: Any = None) -> Any:
                if key == "content":
                    self.reads += 1
                return super().get(key, default)

        class CountingContext(ListContext):
            async def add_message(self, message: dict[str, Any]) -> None:
                await super().add_message(Counted(message))

        dumps = []

        class Block(TextBlock):
            def model_dump(self, **options: Any) -> dict[str, Any]:
                dumps.append(options)
                return super().model_dump(**options)

        def response(number: int) -> Any:
            call = {"id": f"c{number}", "name": "echo", "arguments": {}}
            return SimpleNamespace(content=[Block(text="Looking")], tool_calls=[call])

        stage = Stage([*map(response, range(50)), answer()], [echo()], context=CountingContext())

        await stage.run(orchestrator)

        *sent, last = stage.messages
        assert [message.reads for message in sent] == [1] * 101  # type: ignore[attr-defined]
        assert last["role"] == "assistant"
        assert len(dumps) == 50  # what is stored, and nothing for events

    async def test_messages_are_not_copied_for_the_event(self, orchestrator: BasicOrchestrator) -> None:
        stage, recorder = Stage([calling(("c1", "echo")), answer()], [echo()]), EventRecorder()

        await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, recorder)

        (_, first), (_, second) = recorder.get_events("provider:request")
        assert second["messages"][0] is first["messages"][0]


class TestMinimalPlan:
    async def test_the_smallest_mount_plan_holds_a_conversation(self) -> None:
        plan = {
            "session": {
                "orchestrator": "loop-basic",
                "orchestrator_source": str(MODULES / "loop-basic"),
                "context": "context-simple",
                "context_source": str(MODULES / "context-simple"),
            },
            "providers": [],
        }
        provider = MockProvider([calling(("c1", "echo", {"n": 1})), "It is one.", "You are welcome."])
        async with AmplifierSession(plan) as session:
            await session.coordinator.mount("providers", provider, name="mock")
            await session.coordinator.mount("tools", echo())

            answers = [await session.execute("What is n?"), await session.execute("Thanks")]

            messages = await session.coordinator.get("context").get_messages()
        assert answers == ["It is one.", "You are welcome."]
        assert [message["role"] for message in messages[2:]] == ["tool", "assistant", "user", "assistant"]
        assert texts_of(provider.requests[-1]) == ["What is n?", "", '{"n": 1}', "It is one.", "Thanks"]
