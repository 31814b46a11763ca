"""What is said to a turn while it runs reaches it before its next provider call, whichever of our loops runs it."""

from pathlib import Path

import pytest
from agents_at_work import Agent, call

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
