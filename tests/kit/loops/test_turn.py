"""Writing an orchestrator with the kit: a turn of one's own, from a prompt to its answer."""

import json
import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from amplifier_core import HookRegistry
from amplifier_core.testing import EventRecorder, MockContextManager, MockProvider, MockTool
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.orchestrator import LoopOrchestrator
from amplifier_kit.loops.requests import RequestBuilder
from amplifier_kit.loops.settings import LoopSettings
from amplifier_kit.loops.transcript import Reply, Transcript
from amplifier_kit.loops.turn import Turn


class ShoutingTurn(Turn):
    """A loop that differs in one step."""

    orchestrator = "loop-shouting"

    def read_text(self, response: Any) -> str:
        return super().read_text(response).upper()


class ShoutingOrchestrator(LoopOrchestrator):
    def __init__(self, **config: Any) -> None:
        super().__init__(LoopSettings.read(ModuleConfig("loop-shouting", config)))
        self._builder = RequestBuilder()

    def begin(self, *state: Any) -> ShoutingTurn:
        return ShoutingTurn(self.settings, self._builder, *state)


async def test_a_loop_of_ones_own_overrides_the_step_in_which_it_differs() -> None:
    context, tools = MockContextManager(), {"mock_tool": MockTool()}

    text = await ShoutingOrchestrator().execute("Hi", context, {"mock": MockProvider(["hello"])}, tools, HookRegistry())

    assert text == "HELLO"
    assert [message["role"] for message in context.messages] == ["user", "assistant"]


async def test_arguments_it_does_not_know_are_ignored() -> None:
    given: Any = {"context": MockContextManager(), "providers": {"mock": MockProvider()}, "tools": {}}

    text = await ShoutingOrchestrator().execute("Hi", hooks=HookRegistry(), later="argument", **given)

    assert text == "MOCK RESPONSE"


async def test_a_turn_says_afterwards_how_it_went() -> None:
    state = ("Hi", MockContextManager(), {"mock": MockProvider(["hello"])}, {}, HookRegistry())
    turn = ShoutingOrchestrator().begin(*state)

    await turn.answer()

    assert (turn.status, turn.text, turn.provider_calls, turn.iteration) == ("success", "HELLO", 1, 0)


@pytest.mark.parametrize("coordinator", [MagicMock(), AsyncMock()], ids=["plain", "async"])
async def test_a_coordinator_that_agrees_to_everything_does_not_cancel_the_turn(coordinator: Any) -> None:
    providers = {"mock": MockProvider(["hello"])}

    text = await ShoutingOrchestrator().execute("Hi", MockContextManager(), providers, {}, HookRegistry(), coordinator)

    assert text == "HELLO"


async def test_a_response_may_be_a_plain_dict() -> None:
    call = {"id": "c1", "name": "mock_tool", "arguments": {}}
    answers = [{"content": "", "tool_calls": [call]}, {"content": [{"type": "text", "text": "hello"}]}]
    provider = SimpleNamespace(complete=AsyncMock(side_effect=answers))
    context, tools = MockContextManager(), {"mock_tool": MockTool()}

    text = await ShoutingOrchestrator().execute("Hi", context, {"mock": provider}, tools, HookRegistry())

    assert text == "HELLO"
    assert [message["role"] for message in context.messages] == ["user", "assistant", "tool", "assistant"]


async def test_what_is_told_of_a_response_is_json_whatever_the_provider_put_there() -> None:
    response = SimpleNamespace(content="hello", finish_reason=object(), usage=object())
    hooks = EventRecorder()
    providers = {"mock": SimpleNamespace(complete=AsyncMock(return_value=response))}

    await ShoutingOrchestrator().execute("Hi", MockContextManager(), providers, {}, hooks)

    ((_, told),) = hooks.get_events("provider:response")
    assert json.loads(json.dumps(told))["provider"] == "mock"


async def test_the_reminder_at_the_limit_is_counted_as_the_orchestrators_own_injection() -> None:
    coordinator = SimpleNamespace(process_hook_result=AsyncMock())
    state: Any = ({"mock": MockProvider(["hello"])}, {}, HookRegistry(), coordinator)

    await ShoutingOrchestrator(max_iterations=0).execute("Hi", MockContextManager(), *state)

    ((counted, event, hook_name),) = [call.args for call in coordinator.process_hook_result.await_args_list]
    assert (event, hook_name) == ("provider:request", "orchestrator")
    assert (counted.action, counted.context_injection_role, counted.ephemeral) == ("inject_context", "system", True)


async def test_tools_may_be_missing_altogether() -> None:
    providers: Any = {"mock": MockProvider(["hello"])}

    text = await ShoutingOrchestrator().execute("Hi", MockContextManager(), providers, None, HookRegistry())  # type: ignore[arg-type]

    assert text == "HELLO"


@pytest.mark.parametrize(
    ("reply", "is_answer"),
    [
        (Reply(SimpleNamespace(content=[]), ""), False),
        (Reply(SimpleNamespace(content=["block"]), ""), True),
        (Reply(SimpleNamespace(), "text"), True),
        (Reply(SimpleNamespace(content=["block"]), "text", [SimpleNamespace()]), False),  # type: ignore[list-item]
    ],
)
def test_a_reply_is_an_answer_if_it_says_something_and_calls_nothing(reply: Reply, is_answer: bool) -> None:
    assert reply.is_answer is is_answer


class TestSettings:
    def test_defaults(self) -> None:
        assert LoopSettings.read(ModuleConfig("loop", None)) == LoopSettings()

    @pytest.mark.parametrize(("given", "timeout"), [(0, None), (-1, None), ("3", 3.0), (None, None)])
    def test_a_timeout_has_to_be_above_zero_to_count(self, given: Any, timeout: float | None) -> None:
        assert LoopSettings.read(ModuleConfig("loop", {"timeout": given})).timeout == timeout


class TestTranscript:
    async def test_messages_that_cannot_be_stored_do_not_keep_the_others_out(self) -> None:
        stored: list[Any] = []

        class Context:
            async def add_message(self, message: Any) -> None:
                if message["content"] == "bad":
                    raise OSError("no room")
                stored.append(message["content"])

        messages = [{"role": "tool", "content": content} for content in ("one", "bad", "two")]

        with pytest.raises(OSError, match="no room"):
            await Transcript(Context()).add_all(messages)

        assert stored == ["one", "two"]

    async def test_only_a_transcript_that_ends_on_results_is_closed_and_only_once(self) -> None:
        context = MockContextManager()
        transcript = Transcript(context)

        await transcript.close()
        await transcript.add({"role": "tool", "content": "x"})
        await transcript.close()
        await transcript.close()

        assert [message["role"] for message in context.messages] == ["tool", "assistant"]

    async def test_a_closing_message_that_cannot_be_stored_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        class Context:
            async def add_message(self, message: Any) -> None:
                if message["role"] == "assistant":
                    raise OSError("no room")

        transcript = Transcript(Context())
        await transcript.add({"role": "tool", "content": "x"})

        await transcript.close()

        assert [record.levelno for record in caplog.records] == [logging.ERROR]
