"""The guard in real sessions: a tool that is not approved does not run, whichever loop is mounted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ChatResponse, TextBlock, ToolCall
from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.testing import MockProvider, MockTool

LOOPS = ["loop-basic", "loop-streaming", "loop-events"]
YES = ApprovalResponse(approved=True)


class GuardedSession:
    """A session whose model runs commands."""

    def __init__(self, session: AmplifierSession) -> None:
        self.session = session
        self.ran: list[str] = []
        self.asked: list[str] = []
        self.is_asked = asyncio.Event()
        self.answer: Callable[[str], Awaitable[Any]]
        session.coordinator.get_capability("approval.register_provider")(self)

    async def request_approval(self, request: ApprovalRequest) -> Any:
        self.asked.append(request.action)
        self.is_asked.set()
        return await self.answer(request.action)

    async def run(self, *commands: str) -> list[str]:
        """Let the model run commands in one go; returns what it is told about each."""

        async def execute(arguments: dict[str, Any]) -> str:
            self.ran.append(arguments["command"])
            return "done"

        bash = MockTool("bash")
        bash.execute = execute
        calls = [
            ToolCall(id=f"c{number}", name="bash", arguments={"command": command})
            for number, command in enumerate(commands)
        ]
        answers = [ChatResponse(content=[TextBlock(text="")], tool_calls=calls), "finished"]
        await self.session.coordinator.mount("tools", bash)
        await self.session.coordinator.mount("providers", MockProvider(answers), name="mock")
        assert await self.session.execute("go") == "finished"
        return await self.results()

    async def results(self) -> list[str]:
        messages = await self.session.coordinator.get("context").get_messages()
        return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.fixture
async def start_session(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[GuardedSession]]]:
    sessions: list[AmplifierSession] = []

    async def start(loop: str = "loop-basic", system: Any = None, **config: Any) -> GuardedSession:
        plan = {
            "session": {"orchestrator": {"module": loop}, "context": {"module": "context-simple"}},
            "hooks": [
                {"module": "hooks-approval", "config": {"audit": {"file": str(tmp_path / "audit.jsonl")}, **config}}
            ],
        }
        session = AmplifierSession(plan, approval_system=system)
        sessions.append(session)
        await session.initialize()
        assert session.status.load_failures == []
        return GuardedSession(session)

    yield start
    for session in sessions:
        await session.cleanup()


@pytest.mark.parametrize("loop", LOOPS)
async def test_only_approved_commands_run_and_the_model_hears_why_the_others_did_not(
    start_session: Any, loop: str
) -> None:
    guarded = await start_session(loop)

    async def answer(action: str) -> ApprovalResponse:
        return ApprovalResponse(approved=action == "Execute: make", reason="too dear")

    guarded.answer = answer
    results = await guarded.run("ls", "make", "deploy", "ls; deploy")

    assert sorted(guarded.ran) == ["ls", "make"]
    assert results[:2] == ["done", "done"]
    assert all("too dear" in result for result in results[2:])


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_guard_that_fails_lets_nothing_run(start_session: Any, loop: str) -> None:
    guarded = await start_session(loop)

    async def answer(action: str) -> ApprovalResponse:
        raise asyncio.CancelledError

    guarded.answer = answer
    results = await guarded.run("make", "deploy")

    assert guarded.ran == []
    assert all("Approval system error" in result for result in results)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_cancelled_during_the_question_runs_nothing_and_leaves_a_valid_transcript(
    start_session: Any, loop: str
) -> None:
    guarded = await start_session(loop)

    async def answer(action: str) -> ApprovalResponse:
        await asyncio.Event().wait()
        return YES

    guarded.answer = answer
    turn = asyncio.create_task(guarded.run("make", "deploy"))
    await guarded.is_asked.wait()

    turn.cancel()
    await asyncio.wait([turn])

    assert turn.cancelled()
    assert guarded.ran == []
    assert len(await guarded.results()) == 2


async def test_an_answer_to_be_remembered_stands_for_the_other_calls_of_the_same_response(start_session: Any) -> None:
    guarded = await start_session()

    async def answer(action: str) -> ApprovalResponse:
        await asyncio.sleep(0)
        return ApprovalResponse(approved=True, remember=True)

    guarded.answer = answer
    await guarded.run("git add a", "git add b", "git pull")

    assert guarded.asked == ["Execute: git add a", "Execute: git pull"]
    assert sorted(guarded.ran) == ["git add a", "git add b", "git pull"]


@pytest.mark.parametrize(("decision", "ran"), [("Allow", ["make"]), ("Deny", []), ("perhaps", [])])
async def test_without_a_provider_the_applications_own_approval_system_can_decide(
    start_session: Any, decision: str, ran: list[str]
) -> None:
    class System:
        async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109
            return decision

    guarded = await start_session(system=System(), ask_user_fallback=True)
    guarded.session.coordinator.get_capability("approval.register_provider")(None)

    await guarded.run("make")

    assert guarded.ran == ran


async def test_two_sessions_are_asked_about_separately(start_session: Any) -> None:
    one, other = await start_session(), await start_session()

    async def approve(action: str) -> ApprovalResponse:
        return ApprovalResponse(approved=True, remember=True)

    async def refuse(action: str) -> ApprovalResponse:
        return ApprovalResponse(approved=False)

    one.answer, other.answer = approve, refuse

    await asyncio.gather(one.run("make"), other.run("make"))

    assert (one.ran, other.ran) == (["make"], [])
