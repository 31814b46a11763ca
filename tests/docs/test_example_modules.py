"""The modules in `examples/modules` keep their contracts, and the loop obeys every answer a hook can give."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amplifier_core import (
    AmplifierSession,
    ChatResponse,
    HookRegistry,
    HookResult,
    ProviderUnavailableError,
    ToolCall,
    ToolCallBlock,
    ToolResult,
)
from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import (
    EventRecorder,
    MockContextManager,
    MockCoordinator,
    MockProvider,
    MockTool,
    create_test_coordinator,
)
from amplifier_core.validation.base import import_module_from_path
from amplifier_core.validation.behavioral import (
    ContextBehaviorTests,
    HookBehaviorTests,
    OrchestratorBehaviorTests,
    ProviderBehaviorTests,
    ToolBehaviorTests,
)
from amplifier_core.validation.structural import (
    ContextStructuralTests,
    HookStructuralTests,
    OrchestratorStructuralTests,
    ProviderStructuralTests,
    ToolStructuralTests,
)

MODULES = Path(__file__).parents[2] / "examples/modules"


def _package(module_id: str) -> Path:
    return MODULES / module_id / ("amplifier_module_" + module_id.replace("-", "_"))


class TestLoopSmall(OrchestratorBehaviorTests, OrchestratorStructuralTests):
    @pytest.fixture
    def module_path(self) -> Path:
        return _package("loop-small")


class TestContextList(ContextBehaviorTests, ContextStructuralTests):
    @pytest.fixture
    def module_path(self) -> Path:
        return _package("context-list")

    # It never compacts, so it has no such internals; the bases would skip these.
    test_internal_should_compact_returns_bool = None
    test_internal_compact_does_not_crash = None


class TestProviderScripted(ProviderBehaviorTests, ProviderStructuralTests):
    @pytest.fixture
    def module_path(self) -> Path:
        return _package("provider-scripted")


class TestToolWordCount(ToolBehaviorTests, ToolStructuralTests):
    @pytest.fixture
    def module_path(self) -> Path:
        return _package("tool-word-count")

    @pytest.mark.parametrize(
        ("path", "code"),
        [("missing.txt", "not_found"), ("../outside.txt", "access_denied"), ("picture.png", "unreadable")],
    )
    async def test_a_file_it_cannot_count_is_a_failure_the_model_can_act_on(
        self, folder: Path, path: str, code: str
    ) -> None:
        module = import_module_from_path(_package("tool-word-count"))
        (folder / "root").mkdir()
        (folder / "outside.txt").write_text("secret")
        (folder / "root/picture.png").write_bytes(b"\x89PNG\xff")

        result = await module.WordCountTool(folder / "root").execute({"path": path})

        assert (result.success, result.error["code"]) == (False, code)
        assert path in result.output

    async def test_an_empty_file_has_no_words(self, folder: Path) -> None:
        module = import_module_from_path(_package("tool-word-count"))
        (folder / "empty.txt").touch()

        result = await module.WordCountTool(folder).execute({"path": "empty.txt"})

        assert (result.output["words"], result.output["most_frequent"]) == (0, "")


class TestHooksTrace(HookBehaviorTests, HookStructuralTests):
    @pytest.fixture
    def module_path(self) -> Path:
        return _package("hooks-trace")

    async def test_an_event_with_other_fields_still_has_its_line(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        coordinator = MockCoordinator()
        await import_module_from_path(_package("hooks-trace")).mount(coordinator, {})

        await coordinator.hooks.emit("tool:pre", {"other": 1})
        await coordinator.hooks.emit("plan:start", {})

        assert capsys.readouterr().out.splitlines() == ["   1  tool:pre", "   2  plan:start"]


CALLS = [ToolCall(id=f"call_{number}", name="read", arguments={"path": f"{number}.txt"}) for number in (1, 2)]
WANTS_TOOLS = ChatResponse(
    content=[ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in CALLS], tool_calls=CALLS
)


class Turn:
    """A turn of loop-small in which the model asks for the tool `read` twice and then answers."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.coordinator = create_test_coordinator()
        self.context: MockContextManager = self.coordinator.get("context")
        self.provider = MockProvider([WANTS_TOOLS, "Done."])
        self.tool = MockTool("read", "contents")
        self.hooks: HookRegistry = self.coordinator.hooks
        self.recorder = EventRecorder()
        for event in ALL_EVENTS:
            self.hooks.register(event, self.recorder.record, priority=100)

    def answer(self, event: str, **answer: Any) -> None:
        """Have a hook give this answer, the first time it is asked."""
        answers = iter([HookResult(**answer)])
        self.hooks.register(event, lambda event, data: next(answers, None), name="answering")

    async def run(self, *, config: dict[str, Any] | None = None, alone: bool = False) -> str:
        """Execute the turn, with the coordinator or `alone`, with the five documented arguments."""
        loop = self.module.SmallLoop(config or {})
        more = {} if alone else {"coordinator": self.coordinator}
        answer: str = await loop.execute(
            prompt="Read them",
            context=self.context,
            providers={"mock": self.provider},
            tools={"read": self.tool},
            hooks=self.hooks,
            **more,
        )
        return answer

    @property
    def heard(self) -> list[str]:
        return [event for event, _ in self.recorder.get_events()]

    def data_of(self, event: str) -> dict[str, Any]:
        return self.recorder.get_events(event)[0][1]

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.context.messages]

    @property
    def tool_messages(self) -> list[Any]:
        return [message["content"] for message in self.context.messages if message["role"] == "tool"]


@pytest.fixture
def turn(folder: Path) -> Turn:
    return Turn(import_module_from_path(_package("loop-small")))


async def test_tools_run_in_the_order_of_their_calls_and_the_model_reads_their_results(turn: Turn) -> None:
    answer = await turn.run()

    assert answer == "Done."
    assert turn.roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert turn.tool_messages == ["contents", "contents"]
    assert [message.role for message in turn.provider.requests[1].messages] == ["user", "assistant", "tool", "tool"]
    assert turn.heard == [
        "prompt:submit", "execution:start", "provider:request", "provider:response", "tool:pre", "tool:post",
        "tool:pre", "tool:post", "provider:request", "provider:response", "prompt:complete", "orchestrator:complete",
        "execution:end",
    ]  # fmt: skip


async def test_a_denied_prompt_ends_the_turn_before_it_began(turn: Turn) -> None:
    turn.answer("prompt:submit", action="deny", reason="closed")

    assert await turn.run() == "Operation denied: closed"
    assert turn.context.messages == []
    assert turn.heard == ["orchestrator:complete"]


async def test_a_changed_prompt_is_the_one_that_is_stored(turn: Turn) -> None:
    turn.answer("prompt:submit", action="modify", data={"prompt": "Read them, please"})

    await turn.run()

    assert turn.context.messages[0] == {"role": "user", "content": "Read them, please"}


async def test_a_denied_request_never_reaches_the_provider(turn: Turn) -> None:
    turn.answer("provider:request", action="deny", reason="over budget")

    assert await turn.run() == "Operation denied: over budget"
    assert turn.provider.call_count == 0


async def test_a_denied_tool_is_told_to_the_model_and_the_other_still_runs(turn: Turn) -> None:
    turn.answer("tool:pre", action="deny", reason="not this one")

    assert await turn.run() == "Done."
    assert turn.tool_messages == ["Denied by hook: not this one", "contents"]
    assert turn.heard.count("tool:post") == 1


async def test_a_changed_input_is_the_one_the_tool_gets(turn: Turn) -> None:
    turn.answer("tool:pre", action="modify", data={"tool_name": "read", "tool_input": {"path": "safe.txt"}})

    await turn.run()

    assert turn.tool.execute.await_args_list[0].args == ({"path": "safe.txt"},)
    assert turn.data_of("tool:post")["tool_input"] == {"path": "safe.txt"}


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"success": True, "output": "masked", "error": None}, "masked"),
        ("masked", "masked"),
        ({"lines": [1, 2]}, '{"lines": [1, 2]}'),
    ],
)
async def test_a_replaced_result_is_the_one_the_model_reads(turn: Turn, result: Any, content: str) -> None:
    turn.answer("tool:post", action="modify", data={"result": result})

    await turn.run()

    assert turn.tool_messages == [content, "contents"]


@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_an_injection_waits_until_every_call_has_its_result(turn: Turn, event: str) -> None:
    turn.answer(event, action="inject_context", context_injection="Mind the size.")

    await turn.run()

    assert turn.roles == ["user", "assistant", "tool", "tool", "system", "assistant"]
    assert turn.provider.requests[1].messages[-1].content == "Mind the size."


async def test_an_injection_into_a_request_is_read_in_that_request(turn: Turn) -> None:
    turn.answer("provider:request", action="inject_context", context_injection="Be brief.")

    await turn.run()

    assert [message.content for message in turn.provider.requests[0].messages] == ["Read them", "Be brief."]


async def test_an_ephemeral_injection_is_read_once_and_not_stored(turn: Turn) -> None:
    turn.answer("provider:request", action="inject_context", context_injection="It is noon.", ephemeral=True)

    await turn.run()

    first, second = turn.provider.requests
    assert first.messages[-1].content == "It is noon."
    assert "It is noon." not in [message.content for message in second.messages]
    assert turn.roles == ["user", "assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize(
    ("decision", "first"), [("Allow", "contents"), ("Deny", "Denied by hook: User denied: Read it?")]
)
async def test_the_user_decides_whether_a_tool_runs(turn: Turn, decision: str, first: str) -> None:
    turn.coordinator.approval_system.request_approval.return_value = decision
    turn.answer("tool:pre", action="ask_user", approval_prompt="Read it?")

    await turn.run()

    assert turn.tool_messages == [first, "contents"]


async def test_without_a_coordinator_nobody_can_be_asked_and_the_answer_is_no(turn: Turn) -> None:
    turn.answer("tool:pre", action="ask_user", approval_prompt="Read it?")

    assert await turn.run(alone=True) == "Done."
    assert turn.tool_messages == ["Denied by hook: no one can be asked for approval", "contents"]


async def test_without_a_coordinator_an_injection_is_for_the_next_request(turn: Turn) -> None:
    turn.answer("tool:post", action="inject_context", context_injection="Mind the size.")

    await turn.run(alone=True)

    assert turn.provider.requests[1].messages[-1].content == "Mind the size."


async def test_a_tool_that_raises_does_not_end_the_turn(turn: Turn) -> None:
    turn.tool.execute.side_effect = [OSError("disk on fire"), ToolResult(output="contents")]

    assert await turn.run() == "Done."
    assert turn.tool_messages == ["Error executing tool: disk on fire", "contents"]
    assert turn.data_of("tool:error")["error"] == {"type": "OSError", "msg": "disk on fire"}


async def test_a_tool_that_is_not_there_is_told_to_the_model(turn: Turn) -> None:
    turn.tool = MockTool("write")
    loop = turn.module.SmallLoop({})

    await loop.execute("Read", turn.context, {"mock": turn.provider}, {"write": turn.tool}, turn.hooks)

    assert turn.tool_messages == ["Error executing tool: there is no tool 'read'; mounted are: write"] * 2


async def test_a_provider_that_fails_ends_the_turn_with_its_own_error(turn: Turn) -> None:
    failure = ProviderUnavailableError("away")
    turn.provider = MockProvider([failure])

    with pytest.raises(ProviderUnavailableError) as raised:
        await turn.run()

    assert raised.value is failure
    assert turn.heard[-3:] == ["provider:error", "orchestrator:complete", "execution:end"]
    assert turn.data_of("execution:end")["status"] == "error"


async def test_a_cancelled_turn_stops_before_the_next_request(turn: Turn) -> None:
    cancelled = list[str]()
    turn.coordinator.cancellation.on_cancel(lambda: cancelled.append("told"))
    turn.hooks.register("tool:post", lambda event, data: turn.coordinator.cancellation.request_graceful() and None)

    assert await turn.run() == ""
    assert turn.provider.call_count == 1
    assert turn.data_of("cancel:requested")["state"] == "graceful"
    assert (cancelled, turn.data_of("execution:end")["status"]) == (["told"], "cancelled")


async def test_a_model_that_never_stops_asking_is_stopped(turn: Turn) -> None:
    turn.provider = MockProvider([WANTS_TOOLS] * 5)

    answer = await turn.run(config={"max_rounds": 2})

    assert answer == "Stopped: the model still wanted tools after 2 rounds."
    assert turn.provider.call_count == 3


@pytest.mark.parametrize(("config", "chosen"), [({}, "first"), ({"default_provider": "second"}, "second")])
async def test_the_first_provider_answers_unless_another_is_configured(
    turn: Turn, config: dict[str, Any], chosen: str
) -> None:
    providers = {name: MockProvider([name]) for name in ("first", "second")}

    assert await turn.module.SmallLoop(config).execute("Hi", turn.context, providers, {}, turn.hooks) == chosen


async def test_the_script_goes_on_from_turn_to_turn(folder: Path) -> None:
    def entry(module_id: str, **config: Any) -> dict[str, Any]:
        return {"module": module_id, "source": (MODULES / module_id).as_uri(), "config": config}

    plan = {
        "session": {"orchestrator": entry("loop-small"), "context": entry("context-list")},
        "providers": [entry("provider-scripted", script=[{"say": "One."}, {"say": "Two."}])],
    }

    async with AmplifierSession(plan) as session:
        answers = [await session.execute("Count") for _ in range(3)]

    assert answers == ["One.", "Two.", "The script is over."]
