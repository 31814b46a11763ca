"""Limits of a session tree: a call that could exceed them is not made, and nothing is left half done."""

from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call

from amplifierd.exceptions import InvalidLimitsError
from amplifierd.home import Home

COUNTED = {"usage": {"input_tokens": 500, "output_tokens": 500, "total_tokens": 1000}, "max_output_tokens": 1000}
"""Less than what is estimated for a request with the descriptions of tools."""


def helper(script: list[Any]) -> dict[str, Any]:
    provider = {"module": "provider-mock", "config": {"script": script, **COUNTED}}
    return {"description": "Helps", "instruction": "Help.", "providers": [provider]}


def delegating(count: int) -> Agent:
    calls = [{"name": "task", "arguments": {"agent": "helper", "instruction": f"Part {n}"}} for n in range(count)]
    tools = [{"module": "tool-filesystem"}, {"module": "tool-task", "config": {"max_concurrent": 50}}]
    script = [{"tool_calls": calls}, "All done."]
    return Agent(script, tools=tools, agents={"helper": helper(["Helped."])}, provider=COUNTED)


def orphans(home: Home, session_id: str) -> set[str]:
    messages = home.sessions.messages(session_id)
    asked = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    return asked - {message.get("tool_call_id") for message in messages}


@pytest.mark.parametrize("children", [3, 50])
async def test_a_tree_stops_before_the_call_that_could_exceed_its_limit(
    home: Home, work: Path, tmp_path: Path, children: int
) -> None:
    allowed = 1_000 * (1 + children // 2) + 3_500
    source = delegating(children).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"total_tokens": allowed}) as session:
        result = await session.execute("Delegate")

    record = home.sessions.get(session.session_id)
    below = home.sessions.children(session.session_id)
    assert record.usage_tree is not None
    assert record.usage_tree["tokens"]["total"] <= allowed
    assert result.finish_reason == "budget"
    assert len(below) == children
    assert all(not orphans(home, each) for each in (record.session_id, *(child.session_id for child in below)))
    names = [event["event"] for event in home.sessions.events(session.session_id) if event["event"] != "session:status"]
    assert "budget:exhausted" in names
    assert names[-2:] == ["execution:done", "session:end"]


async def test_tool_calls_are_limited_and_the_turn_ends_properly(home: Home, work: Path, tmp_path: Path) -> None:
    read = call("read_file", file_path="notes.md")
    source = Agent([read, read, read, "Done."]).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"tool_calls": 2}) as session:
        result = await session.execute("Read on")
        await session.set_limits({"tool_calls": 10})
        again = await session.execute("And now?")

    assert (result.finish_reason, result.usage["tool_calls"]) == ("budget", 2)
    assert "limit" in result.response
    assert again.finish_reason == "stop"


async def test_limits_hold_after_a_resume(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent(["One.", "Two."]).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"turns": 1}) as session:
        await session.execute("First")
    async with home.sessions.resume(session.session_id) as session:
        second = await session.execute("Second")

    assert second.status == "failed"
    assert second.error is not None
    assert (second.error["code"], second.error["status"]) == ("budget-exhausted", 429)


async def test_limits_of_an_agent_s_session_only_narrow_those_of_its_tree(
    home: Home, work: Path, tmp_path: Path
) -> None:
    source = delegating(1).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"turns": 2}) as session:
        await session.execute("Delegate")
    (child,) = home.sessions.children(session.session_id)
    async with home.sessions.resume(child.session_id) as session:
        await session.set_limits({"turns": 100, "tool_calls": 5})
        raised = await session.execute("Go on")
    async with home.sessions.resume(child.root_id) as session:
        await session.set_limits({"turns": 100})
        async with home.sessions.resume(child.session_id) as below:
            await below.set_limits({"turns": 1})
            lowered = await below.execute("Go on")

    assert [result.error and result.error["code"] for result in (raised, lowered)] == ["budget-exhausted"] * 2


async def test_an_unknown_price_is_unknown_and_not_zero(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent(["Hello."], provider=COUNTED).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work) as session:
        result = await session.execute("Hi")

    assert (result.usage["cost_usd"], result.usage["unpriced_tokens"]) == (None, 1_000)


async def test_limits_that_make_no_sense_are_refused(home: Home, work: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidLimitsError, match=r"limits\.tokens"):
        await home.sessions.create(**Agent().source(home, "plan", tmp_path), working_dir=work, limits={"tokens": 1})
