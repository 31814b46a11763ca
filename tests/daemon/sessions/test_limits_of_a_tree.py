"""A session and its agents under one limit: nothing exceeds it, and nothing is left half done."""

from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call

from amplifierd.home import Home

READ = call("read_file", file_path="notes.md")
USED = {"input_tokens": 400, "output_tokens": 100, "total_tokens": 500}
MODEL = {"usage": USED, "max_output_tokens": 100, "on_exhausted": "repeat_last", "tool_trigger": None}
HELPER = {
    "description": "Reads on and on",
    "instruction": "You read files.",
    "providers": [{"module": "provider-mock", "config": {**MODEL, "script": [READ]}}],
}


def delegating(children: int) -> Agent:
    """Return an agent that starts some helpers at once; none of them would ever stop by itself."""
    task = {"name": "task", "arguments": {"agent": "helper", "instruction": "Read the notes"}}
    return Agent(
        [{"tool_calls": [task] * children}, "All have come back."],
        tools=[{"module": "tool-filesystem"}, {"module": "tool-task"}],
        agents={"helper": HELPER},
        orchestrator="loop-basic",
        provider=MODEL,
    )


def calls_and_results(messages: Any) -> tuple[list[str], list[str]]:
    asked = [one["id"] for message in messages for one in message.get("tool_calls") or ()]
    return asked, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize("children", [3, 50])
async def test_a_tree_stops_before_the_call_that_could_exceed_its_limit(
    home: Home, work: Path, tmp_path: Path, children: int
) -> None:
    limit = children * 2000
    source = delegating(children).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"total_tokens": limit}) as session:
        events = [event async for event in session.stream("Ask all of them")]

    parent = home.sessions.get(session.session_id)
    below = home.sessions.children(session.session_id)
    assert len(below) == children
    assert parent.usage_tree is not None
    used = parent.usage_tree["tokens"]["total"]
    assert limit - 2000 < used <= limit
    assert used == sum((record.usage or {})["tokens"]["total"] for record in (parent, *below))
    assert sum(event["event"] == "budget:warning" for event in events) == 1
    told = [event["session_id"] for event in events if event["event"] == "budget:exhausted"]
    assert {record.session_id for record in below} <= set(told)
    assert len(told) == len(set(told))
    done = [event for event in events if event["event"] == "execution:done" and event["session_id"] in told]
    assert {event["data"]["finish_reason"] for event in done} == {"budget"}
    for record in (parent, *below):
        messages = home.sessions.messages(record.session_id)
        asked, answered = calls_and_results(messages)
        assert sorted(asked) == sorted(answered)
        assert messages[-1]["role"] == "assistant"
        stored = home.sessions.events(record.session_id)
        intents = [one["data"]["tool_call_id"] for one in stored if one["event"] == "tool:intent"]
        outcomes = [one["data"]["tool_call_id"] for one in stored if one["event"] == "tool:outcome"]
        assert sorted(intents) == sorted(outcomes)


async def test_a_resumed_tree_remembers_what_it_used(home: Home, work: Path, tmp_path: Path) -> None:
    source = delegating(1).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"tool_calls": 3}) as session:
        first = await session.execute("Ask one")

    async with home.sessions.resume(session.session_id) as again:
        second = await again.execute("Ask again")

    assert first.response == "All have come back."
    assert second.finish_reason == "budget"
    tree = home.sessions.get(session.session_id).usage_tree
    assert tree is not None
    assert tree["tool_calls"] == 3


async def test_no_turn_begins_beyond_the_limit(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent(["One.", "Two."]).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work, limits={"turns": 1}) as session:
        first = await session.execute("Hello")
        second = await session.execute("Hello again")

    assert (first.status, second.status) == ("completed", "failed")
    assert second.error is not None
    assert second.error["code"] == "budget-exhausted"
