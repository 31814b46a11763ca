"""Tools that only the client can run: offered to the model, never run here, and continued with their results."""

from pathlib import Path

import pytest
from agents_at_work import Agent, call

from amplifierd.exceptions import SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.layers.client_turns import ClientTurn

WEATHER = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {}},
}


@pytest.fixture(params=("loop-basic", "loop-streaming", "loop-events"))
def orchestrator(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_call_ends_the_turn_and_its_result_continues_it(home: Home, work: Path, orchestrator: str) -> None:
    asking = Agent([call("weather", city="Oslo")], orchestrator=orchestrator)
    async with home.sessions.open(plan=asking.sections(), working_dir=work) as session:
        first = await session.submit("How is it in Oslo?", client=ClientTurn(tools=[WEATHER])).run()

    assert (first.status, first.finish_reason) == ("completed", "tool_calls")
    (handed,) = first.client_calls
    assert (handed["name"], handed["arguments"]) == ("weather", {"city": "Oslo"})

    answering = Agent([{"text": "Well.", "assert": {"contains": "rain"}}], orchestrator=orchestrator)
    client = ClientTurn(
        tools=[WEATHER], answers=[{"content": "", "tool_calls": [handed]}], results={handed["id"]: "rain"}
    )
    async with home.sessions.open(plan=answering.sections(), working_dir=work) as session:
        second = await session.submit("How is it in Oslo?", client=client).run()
        tools = await session.load()

    assert (second.response, second.client_calls) == ("Well.", ())
    assert "weather" not in tools.get("tools")


async def test_tools_of_the_profile_still_run_beside_them(home: Home, work: Path, orchestrator: str) -> None:
    (work / "notes.md").write_text("a note")
    agent = Agent([call("read_file", file_path="notes.md"), call("weather")], orchestrator=orchestrator)
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        result = await session.submit("Look", client=ClientTurn(tools=[WEATHER])).run()
        said = [message.get("content") for message in await session.messages() if message["role"] == "tool"]

    assert [handed["name"] for handed in result.client_calls] == ["weather"]
    assert "a note" in str(said[0])


async def test_a_tool_with_the_name_of_one_of_the_session_is_refused(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["Well."]).sections(), working_dir=work) as session:
        with pytest.raises(SessionStateError, match="read_file"):
            await session.submit("Look", client=ClientTurn(tools=[{"name": "read_file"}])).run()
        assert (await session.execute("Look")).response == "Well."


async def test_options_of_a_request_reach_the_provider_in_that_turn_only(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["One.", "Two."]).sections(), working_dir=work) as session:
        await session.submit("Look", client=ClientTurn(options={"temperature": 0.25})).run()
        await session.execute("Look again")
        first, second = home.sessions.requests(session.session_id)

    assert (first.parameters.get("temperature"), second.parameters.get("temperature")) == (0.25, None)


async def test_a_session_can_begin_with_a_conversation_from_elsewhere(home: Home, work: Path) -> None:
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello Ada."},
    ]
    plan = Agent(["Ada."]).sections()
    async with home.sessions.open(plan=plan, working_dir=work, history=tuple(history)) as session:
        result = await session.execute("Who am I?")
        (request,) = home.sessions.requests(session.session_id)

    assert (result.response, result.turn) == ("Ada.", 2)
    sent = [part.part.role for part in request.parts]
    assert sent[-3:] == ["user", "assistant", "user"], sent
