"""A turn that is cancelled at once ends at once; only what ignores it is given time."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call
from openai_server import KEY, OpenAIServer, Said
from waiting_tool import WaitingTool

from amplifier_foundation.session import find_orphaned_tool_calls
from amplifierd import open_home
from amplifierd.home import Home
from amplifierd.sessions.layers.stoppable_calls import Patience

LOOPS = ("loop-basic", "loop-streaming", "loop-events")
FOR_EVER = Patience(module_s=86_400, model_s=86_400, last_s=86_400)
RATES = {"gpt-5.5": {"input_per_m": 5, "output_per_m": 30}}
NONE = Patience(module_s=0.01, model_s=0.01, last_s=0.01)


class StubbornTool(WaitingTool):
    """Goes on waiting however often it is cancelled."""

    async def execute(self, input: dict[str, Any]) -> dict[str, Any]:
        while not self.go.is_set():
            try:
                return await super().execute(input)
            except asyncio.CancelledError:
                continue
        return {"waited": True}


def with_patience(home: Home, patience: Patience) -> Home:
    home.sessions.runtime = replace(home.sessions.runtime, patience=patience)
    return home


async def let_end(tool: WaitingTool) -> None:
    """Return the moment after a tool has ended, when its outcome is on its way into the store."""
    tool.go.set()
    while not tool.has_ended:  # noqa: ASYNC110 - nothing may happen in between
        await asyncio.sleep(0)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("calls", [1, 3])
async def test_running_tools_are_stopped_at_once(home: Home, work: Path, loop: str, calls: int) -> None:
    with_patience(home, FOR_EVER)
    asked = {"tool_calls": [{"name": "wait_here", "arguments": {"number": number}} for number in range(calls)]}
    plan = Agent([asked, "Never.", "Here again."], orchestrator=loop).sections()
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        tool = await WaitingTool().mount(session)
        turn = asyncio.create_task(session.execute("Wait"))
        await tool.is_running.wait()

        await session.cancel(immediate=True)
        result = await turn

        assert (result.status, tool.was_cancelled) == ("cancelled", True)
        assert {used.status for used in result.tool_calls} <= {"cancelled", "not_run"}
        assert not find_orphaned_tool_calls(list(await session.messages()))
        assert (await session.execute("Hello")).status == "completed"


async def test_the_tools_of_agents_are_stopped_as_well(home: Home, work: Path) -> None:
    with_patience(home, FOR_EVER)
    slow = {"script": [call("bash", command="sleep 600", timeout=900), "Never."]}
    helper = {"instruction": "Help.", "providers": [{"module": "provider-mock", "config": slow}]}
    bash: dict[str, Any] = {"module": "tool-bash", "config": {"safety_profile": "permissive"}}
    tools = [{"module": "tool-task"}, bash]
    agent = Agent([call("task", agent="helper", instruction="Help"), "Never."], tools, agents={"helper": helper})
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        turn = asyncio.create_task(session.execute("Ask the helper"))
        async for event in session.subscribe():
            if event["event"] == "tool:intent" and event["session_id"] != session.session_id:
                break

        await session.cancel(immediate=True)

        assert (await turn).status == "cancelled"


async def test_a_tool_that_ignores_everything_is_left_behind(home: Home, work: Path) -> None:
    with_patience(home, NONE)
    plan = Agent([call("wait_here"), {"text": "Here again.", "repeat": True}]).sections()
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        tool = await StubbornTool().mount(session)
        turn = asyncio.create_task(session.execute("Wait"))
        await tool.is_running.wait()

        await session.cancel(immediate=True)
        result = await turn
        tool.go.set()
        again = await session.execute("Hello")

        assert (result.status, again.status, again.turn) == ("cancelled", "completed", 2)
        messages = list(await session.messages())
        assert not find_orphaned_tool_calls(messages)
        assert [message["turn"] for message in messages] == sorted(message["turn"] for message in messages)


async def test_the_result_of_a_tool_that_has_finished_is_kept_while_its_receipt_is_being_stored(
    postgres_address: str, tmp_path: Path, work: Path
) -> None:
    home = open_home(tmp_path / "home", offline=True, overrides={"store": postgres_address})
    plan = Agent([call("wait_here"), "Never."]).sections()
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        tool = await WaitingTool().mount(session)
        turn = asyncio.create_task(session.execute("Wait"))
        await tool.is_running.wait()

        await let_end(tool)
        await session.cancel(immediate=True)

        assert (await turn).status == "cancelled"
        (answer,) = [one["content"] for one in await session.messages() if one["role"] == "tool"]
        assert "waited" in answer
    await home.sessions.close()


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])  # which run tools side by side
async def test_the_result_of_a_tool_that_has_finished_is_kept_when_its_session_is_closed(
    postgres_address: str, tmp_path: Path, work: Path, loop: str
) -> None:
    home = open_home(tmp_path / "home", offline=True, overrides={"store": postgres_address})
    asked = {"tool_calls": [{"name": name, "arguments": {}} for name in ("wait_here", "wait_longer")]}
    plan = Agent([asked, "Never."], orchestrator=loop).sections()
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        tool, longer = await WaitingTool().mount(session), await WaitingTool("wait_longer").mount(session)
        turn = asyncio.create_task(session.execute("Wait"))
        await asyncio.gather(tool.is_running.wait(), longer.is_running.wait())

        await let_end(tool)
        await session.close()
        await asyncio.wait([turn])

    answers = [one["content"] for one in home.sessions.messages(session.session_id) if one["role"] == "tool"]
    assert ["waited" in str(answer) for answer in answers] == [True, False]
    await home.sessions.close()


async def test_what_the_tool_of_an_agent_did_is_kept_when_the_agent_is_stopped(
    postgres_address: str, tmp_path: Path, work: Path
) -> None:
    home = with_patience(open_home(tmp_path / "home", offline=True, overrides={"store": postgres_address}), FOR_EVER)
    steps = {"script": [call("bash", command="sleep 0.5"), call("wait_here"), "Never."]}
    helper = {"instruction": "Help.", "providers": [{"module": "provider-mock", "config": steps}]}
    tools: list[dict[str, Any]] = [{"module": "tool-task"}, {"module": "tool-bash"}]
    agent = Agent([call("task", agent="helper", instruction="Help"), "Never."], tools, agents={"helper": helper})
    tool = WaitingTool()
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        turn = asyncio.create_task(session.execute("Ask the helper"))
        async for event in session.subscribe():
            if event["event"] == "tool:intent" and event["session_id"] != session.session_id:
                break
        child = session.runner.tree.runners[event["session_id"]]
        await child.kernel.session.coordinator.mount("tools", tool, name=tool.name)
        await tool.is_running.wait()

        await let_end(tool)
        await session.cancel(immediate=True)

        assert (await turn).status == "cancelled"
        stored = [one["content"] for one in home.sessions.messages(child.session_id) if one["role"] == "tool"]
        assert "waited" in stored[-1]
    await home.sessions.close()


async def test_a_model_that_speaks_is_stopped_at_once_and_what_it_said_is_kept_and_counted(
    home: Home, work: Path
) -> None:
    with_patience(home, FOR_EVER)
    for loop in LOOPS:
        with OpenAIServer() as vendor:
            vendor.say(Said("Once upon a time there was a very long story.", stream={"hang_after": 6}), "Here again.")
            config = {"api_key": KEY, "base_url": vendor.base_url, "rates": RATES}
            provider = {"module": "provider-openai", "config": config}
            plan = {**Agent([], orchestrator=loop).sections(), "providers": [provider]}
            async with home.sessions.open(plan=plan, working_dir=work) as session:
                turn = asyncio.create_task(session.execute("Tell me a story"))
                async for event in session.subscribe():
                    if event["event"] == "llm:stream_block_delta":
                        break

                stopping = await session.cancel()
                result = await turn
                await vendor.until(lambda: vendor.requests[0].disconnected)

                assert stopping == {"state": "graceful", "running_tools": []}
                assert (result.status, result.response[:4]) == ("cancelled", "Once")
                assert result.usage["tokens"]["input"] > 100
                assert result.usage["tokens"]["output"] > 0
                assert result.usage["cost_usd"] is not None
                last = (await session.messages())[-1]
                assert (last["role"], last["content"]) == ("assistant", result.response)
                assert last["metadata"] == {"partial": True}

                assert (await session.execute("Go on")).response == "Here again."
                assert any(result.response in str(part) for part in vendor.sent()[-1]["input"])
