"""What is said to a turn while it runs reaches it before its next provider call, whichever of our loops runs it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call

from amplifier_core import HookResult
from amplifierd.exceptions import NothingToSteerError
from amplifierd.home import Home

LOOPS = ("loop-basic", "loop-streaming", "loop-events")
READ = call("read_file", file_path="notes.md")


@pytest.fixture(params=LOOPS)
def orchestrator(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_it_reaches_the_next_provider_call(home: Home, work: Path, orchestrator: str) -> None:
    agent = Agent(
        [READ, {"text": "You said: {{last_user}}", "assert": {"contains": "in English"}}], orchestrator=orchestrator
    )
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        events = []
        async for event in session.stream("Read the notes"):
            events.append(event["event"])
            if event["event"] == "tool:intent":
                steered = await session.steer("Answer in English")
        result = home.sessions.messages(session.session_id)

    assert steered["delivered"] is True
    assert [message["role"] for message in result] == ["user", "assistant", "tool", "user", "assistant"]
    assert result[3]["content"] == "Answer in English"
    assert "orchestrator:steering_injected" in events


async def test_a_turn_that_has_its_answer_goes_on_for_it(home: Home, work: Path, orchestrator: str) -> None:
    agent = Agent(["First.", "Second."], orchestrator=orchestrator, provider={"latency_ms": 50})
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        asked = 0
        async for event in session.stream("Begin"):
            asked += event["event"] == "request:stored"
            if asked == 1 and event["event"] == "request:stored":
                await session.steer("And then?")
        messages = await session.messages()

    assert [message["content"] for message in messages if message["role"] == "user"] == ["Begin", "And then?"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]


async def test_what_is_left_of_a_turn_does_not_reach_the_next_one(home: Home, work: Path, orchestrator: str) -> None:
    agent = Agent(["First.", "Second."], orchestrator=orchestrator)
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        await session.execute("Begin")
        with pytest.raises(NothingToSteerError):
            await session.steer("Too late")
        session.runner.kernel.session.coordinator.get_capability("session.steer")("Left over")
        await session.execute("Go on")
        said = [message["content"] for message in await session.messages() if message["role"] == "user"]

    assert said == ["Begin", "Go on"]


async def test_a_fork_meanwhile_has_neither_what_was_said_nor_a_call_without_a_result(
    home: Home, work: Path, orchestrator: str
) -> None:
    is_asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold_up(event: str, data: dict[str, Any]) -> HookResult:
        is_asked.set()
        await may_go_on.wait()
        return HookResult()

    agent = Agent([READ, "Noted.", "The other way."], orchestrator=orchestrator)
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        session.runner.kernel.session.coordinator.hooks.register("tool:pre", hold_up, name="hold-up")
        turn = asyncio.create_task(session.execute("Read the notes"))
        await is_asked.wait()
        await session.steer("Answer in English")
        fork = await home.sessions.fork(session.session_id)
        may_go_on.set()
        await turn
        messages = await session.messages()
    async with home.sessions.resume(fork.session_id) as forked:
        result = await forked.execute("Go on")
        other = await forked.messages()

    assert [message["content"] for message in messages if message["role"] == "user"][1:] == ["Answer in English"]
    assert result.status == "completed"
    assert [message["role"] for message in other][:4] == ["user", "assistant", "tool", "user"]
    assert [message["content"] for message in other if message["role"] == "user"] == ["Read the notes", "Go on"]
