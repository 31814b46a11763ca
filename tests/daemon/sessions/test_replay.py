"""Recorded sessions, run again."""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, Kind, call
from anthropic_server import MESSAGES, AnthropicServer, reply, text, thinking, tool_use

from amplifierd.exceptions import ProfileNotFoundError, SessionNotFoundError
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import AllowByRule
from amplifierd.sessions.recordings.stored_requests import requests
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord, now

STAND_INS = Path(__file__).parents[2] / "stand_ins"
READ = call("read_file", file_path="notes.md")
FILES = {"module": "tool-filesystem"}
TODO = {"module": "tool-todo"}
AGENT = Agent([READ, "They say: {{last_tool_result}}", "You are welcome."])


async def record(
    home: Home,
    work: Path,
    agent: Agent = AGENT,
    prompts: tuple[str, ...] = ("What do the notes say?", "Thanks"),
    **how: Any,
) -> str:
    source = how.pop("source", None) or agent.source(home, "plan", work)
    async with home.sessions.open(**source, working_dir=work, **how) as session:
        for prompt in prompts:
            await session.execute(prompt)
    return session.session_id


def files_of(home: Home) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(home.paths.sessions.rglob("*")) if path.is_file()}


async def test_the_same_agent_goes_the_same_way(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    session_id = await record(home, work, source=AGENT.source(home, kind, tmp_path))

    result = await home.sessions.replay(session_id)

    assert (result.status, result.exit_status, result.divergence) == ("same", 0, None)
    assert (result.replayed, result.recorded) == (3, 3)
    assert result.to_json()["tokens"]["change"] == 0


@pytest.mark.parametrize("loop", ["loop-basic", "loop-events"])
async def test_every_loop_goes_the_same_way(home: Home, work: Path, loop: str) -> None:
    session_id = await record(home, work, replace(AGENT, orchestrator=loop))

    assert (await home.sessions.replay(session_id)).status == "same"


async def test_nothing_real_runs_and_the_session_stays_as_it_is(home: Home, work: Path) -> None:
    write = call("write_file", file_path="made.md", content="made")
    agent = Agent([write, "Done."])
    session_id = await record(home, work, agent, ("Make it",), approver=AllowByRule(["*"]))
    (work / "made.md").unlink()
    before = files_of(home)

    result = await home.sessions.replay(session_id)

    assert result.status == "same", str(result)
    assert not (work / "made.md").exists()
    assert files_of(home) == before


async def test_another_instruction_is_found_in_the_first_request(home: Home, work: Path, tmp_path: Path) -> None:
    session_id = await record(home, work, source=AGENT.source(home, "profile", tmp_path))
    replace(AGENT, instruction="You are a careful test agent.").source(home, "profile", tmp_path)

    result = await home.sessions.replay(session_id, profile="local/worker")

    assert (result.status, result.exit_status, result.replayed) == ("diverged", 1, 3)
    found = result.divergence
    assert found is not None
    assert (found.request, found.turn, found.field, found.role) == (1, 1, "messages[0]", "system")
    assert found.origin == {"kind": "instruction", "sources": found.origin["sources"]} if found.origin else False
    assert (found.old, found.new) == ("You are a test agent.", "You are a careful test agent.")
    assert result.to_json()["tokens"]["change"] > 0
    assert result.to_json()["cost_usd"] is None
    assert "recorded: You are a test agent.\n  now:      You are a careful" in str(result)
    json.dumps(result.to_json())


async def test_the_own_build_of_a_profile_is_not_affected_by_a_newer_one(
    home: Home, work: Path, tmp_path: Path
) -> None:
    session_id = await record(home, work, source=AGENT.source(home, "profile", tmp_path))
    replace(AGENT, instruction="You are a careful test agent.").source(home, "profile", tmp_path)

    assert (await home.sessions.replay(session_id)).status == "same"


async def test_another_set_of_tools_is_found_in_the_field_tools(home: Home, work: Path) -> None:
    session_id = await record(home, work)
    plan = replace(AGENT, tools=[FILES, TODO]).sections()

    result = await home.sessions.replay(session_id, plan=plan)

    found = result.divergence
    assert found is not None
    assert (found.request, found.field) == (1, "tools")
    assert found.old is not None
    assert found.new is not None
    assert "todo" not in found.old
    assert "todo" in found.new
    assert result.replayed == 3


async def test_a_tool_that_is_gone_is_found_and_its_call_is_answered_differently(home: Home, work: Path) -> None:
    session_id = await record(home, work)
    plan = replace(AGENT, tools=[TODO]).sections()

    result = await home.sessions.replay(session_id, plan=plan)

    assert [found.field for found in result.divergences] == ["tools"]
    assert result.status == "diverged"


async def test_a_changed_context_file_is_found_with_where_it_came_from(home: Home, work: Path) -> None:
    (work / "AGENTS.md").write_text("Use tabs.\n")
    session_id = await record(home, work)
    (work / "AGENTS.md").write_text("Use spaces.\n")

    found = (await home.sessions.replay(session_id)).divergence

    assert found is not None
    assert found.origin is not None
    assert (found.request, found.origin["kind"]) == (1, "context_file")
    assert found.old is not None
    assert "Use tabs." in found.old
    assert found.new is not None
    assert "Use spaces." in found.new


async def test_another_parameter_is_found(home: Home, work: Path) -> None:
    session_id = await record(home, work)
    plan = AGENT.sections()
    plan["session"]["orchestrator"]["config"] = {"reasoning_effort": "high"}

    found = (await home.sessions.replay(session_id, plan=plan)).divergence

    assert found is not None
    assert (found.field, found.old, found.new) == ("parameters.reasoning_effort", None, "high")


async def test_another_provider_is_found_and_the_record_still_answers(home: Home, work: Path) -> None:
    session_id = await record(home, work)
    plan = {**AGENT.sections(), "providers": [{"module": "provider-anthropic", "config": {"max_retries": 0}}]}
    plan["session"]["orchestrator"]["config"] = {"default_provider": "anthropic"}

    result = await home.sessions.replay(session_id, plan=plan)

    assert [found.field for found in result.divergences][:2] == ["provider", "model"]
    assert result.replayed == 3


async def test_a_provider_that_cannot_be_mounted_is_answered_for(home: Home, work: Path) -> None:
    session_id = await record(home, work)
    plan = {**AGENT.sections(), "providers": [{"module": "provider-nowhere"}]}

    result = await home.sessions.replay(session_id, plan=plan)

    assert result.replayed == 3
    assert result.divergence is None or result.divergence.field == "model"


async def test_a_loop_that_stops_earlier_is_found(home: Home, work: Path) -> None:
    agent = Agent([READ, READ, "Enough."])
    session_id = await record(home, work, agent, ("Read it twice",))
    plan = agent.sections()
    plan["session"]["orchestrator"]["config"] = {"max_iterations": 1}

    found = (await home.sessions.replay(session_id, plan=plan)).divergence

    assert found is not None
    assert (found.request, found.turn) == (2, 1)


async def test_times_and_ids_are_no_divergence(home: Home, work: Path) -> None:
    clock = 'date -u +"%Y-%m-%dT%H:%M:%S.%NZ"'
    agent = Agent([call("bash", command=clock), "Late."], tools=[FILES, {"module": "tool-bash"}])
    session_id = await record(home, work, agent, ("What time is it?",), approver=AllowByRule(["*"]))

    assert (await home.sessions.replay(session_id)).status == "same"


async def test_calls_that_were_denied_are_denied_again(home: Home, work: Path) -> None:
    agent = Agent(
        [call("write_file", file_path="made.md", content="made"), "I may not."],
        hooks=[{"module": "hooks-approval", "config": {"default_action": "deny"}}],
    )
    session_id = await record(home, work, agent, ("Make it",))

    result = await home.sessions.replay(session_id)

    assert result.status == "same", str(result)
    assert not (work / "made.md").exists()


async def test_errors_of_the_provider_come_again(home: Home, work: Path) -> None:
    failure = {"error": {"type": "AuthenticationError", "message": "no such key"}}
    session_id = await record(home, work, Agent([failure, "Here I am."]), ("Hello?", "Hello?"))

    result = await home.sessions.replay(session_id)

    assert (result.status, result.recorded) == ("same", 2), str(result)


async def test_what_was_taken_back_is_not_replayed(home: Home, work: Path) -> None:
    session_id = await record(home, work)
    await home.sessions.truncate(session_id, 1)
    async with home.sessions.resume(session_id) as session:
        await session.execute("Once more")

    result = await home.sessions.replay(session_id)

    assert (result.status, result.recorded) == ("same", 4), str(result)  # two of each turn that is there
    assert result.to_json()["tokens"]["change"] == 0


async def test_a_fork_is_replayed_from_where_it_began(home: Home, work: Path) -> None:
    fork = await home.sessions.fork(await record(home, work), 1)
    async with home.sessions.resume(fork.session_id) as session:
        await session.execute("And now?")

    result = await home.sessions.replay(fork.session_id)

    assert result.status == "same", str(result)
    assert result.replayed >= 1


async def test_a_turn_that_its_budget_ended_is_replayed(home: Home, work: Path) -> None:
    agent = Agent([READ, READ, READ, "Enough."])
    session_id = await record(home, work, agent, ("Read on",), limits={"tool_calls": 1})

    result = await home.sessions.replay(session_id)

    assert result.status == "same", str(result)


async def test_a_session_without_recorded_requests_cannot_be_replayed(home: Home, work: Path) -> None:
    store = home.sessions.runtime.store
    empty = SessionRecord(session_id="empty", working_dir=str(work), created_at=now())
    await store.release(await store.create(NewSession(empty, AGENT.sections()), home.sessions.runtime.holder))

    result = await home.sessions.replay("empty")

    assert (result.status, result.exit_status) == ("impossible", 2)
    assert "no recorded provider request" in result.reason


async def test_what_cannot_be_used_is_an_error(home: Home, work: Path) -> None:
    session_id = await record(home, work)

    with pytest.raises(SessionNotFoundError):
        await home.sessions.replay("nowhere")
    with pytest.raises(ProfileNotFoundError):
        await home.sessions.replay(session_id, profile="local/nobody")


async def test_a_session_with_a_vendor_is_replayed_without_key_and_network(home: Home, work: Path) -> None:
    with AnthropicServer() as server:
        look = tool_use("toolu_1", "read_file", {"file_path": "notes.md"})
        first = reply(thinking("hm", "sig-1"), text("I will look."), look)
        server.script(MESSAGES, first, reply(thinking("so", "sig-2"), text("Milk.")), reply(text("Bye.")))
        config = {"api_key": server.key, "base_url": server.url, "max_retries": 0, "reasoning_effort": "high"}
        plan = {**AGENT.sections(), "providers": [{"module": "provider-anthropic", "config": config}]}
        session_id = await record(home, work, source={"plan": plan})
    plan["providers"][0]["config"] = {"base_url": "http://127.0.0.1:9", "reasoning_effort": "high"}
    shorter = {**plan, "session": {**plan["session"], "orchestrator": {"module": "loop-basic"}}, "tools": []}

    same = await home.sessions.replay(session_id, plan=plan)
    other = await home.sessions.replay(session_id, plan=shorter)

    assert (same.status, same.replayed) == ("same", 3), str(same)
    assert Decimal(same.to_json()["cost_usd"]["change"]) == 0
    assert other.status == "diverged"
    assert other.to_json()["cost_usd"]["change"].startswith("-")
    assert "USD" in str(other)


async def test_what_was_said_during_a_turn_is_said_again(home: Home, work: Path) -> None:
    agent = Agent([{**READ, "latency_ms": 300}, "Fine."])
    async with home.sessions.open(**agent.source(home, "plan", work), working_dir=work) as session:
        running = asyncio.create_task(session.execute("Read the notes"))
        watching = session.subscribe(lambda event: event["event"] == "request:stored")
        async for _ in watching:
            await session.steer("And be brief")
            break
        await running

    result = await home.sessions.replay(session.session_id)

    assert (result.status, result.replayed) == ("same", 2), str(result)


async def test_a_child_is_replayed_by_itself(home: Home, work: Path) -> None:
    helper = {
        "description": "Reads for you",
        "instruction": "You read files.",
        "providers": [{"module": "provider-mock", "config": {"script": [READ, "It says milk."]}}],
    }
    agent = Agent(
        [call("task", agent="helper", instruction="Read the notes"), "The helper says milk."],
        tools=[FILES, {"module": "tool-task"}],
        agents={"helper": helper},
    )
    session_id = await record(home, work, agent, ("Ask the helper",))
    (child,) = home.sessions.children(session_id)

    parent, below = await home.sessions.replay(session_id), await home.sessions.replay(child.session_id)

    assert (parent.status, parent.replayed) == ("same", 2), str(parent)
    assert (below.status, below.replayed) == ("same", 2), str(below)
    assert len(home.sessions.children(session_id)) == 1


async def test_a_compacted_conversation_is_compacted_again(home: Home, work: Path) -> None:
    (work / "notes.md").write_text("lorem ipsum dolor\n" * 400)
    agent = Agent([*([READ] * 12), "Enough."], orchestrator="loop-basic")
    plan = agent.sections()
    plan["session"]["context"]["config"] = {"max_tokens": 8000}
    session_id = await record(home, work, source={"plan": plan}, prompts=("Read on",))

    result = await home.sessions.replay(session_id)

    stored = await requests(home.sessions.runtime.store, session_id)
    assert any(part.part.origin.kind == "compaction" for part in stored[-1].parts)
    assert (result.status, result.replayed) == ("same", 13), str(result)


async def test_a_secret_in_a_result_is_no_divergence(home: Home, work: Path) -> None:
    secret = "sk-ant-api03-" + "A1b2C3d4" * 6
    (work / "notes.md").write_text(f"key = {secret}\n")
    session_id = await record(home, work, replace(AGENT, instruction=f"Never say {secret}."))

    assert (await home.sessions.replay(session_id)).status == "same"


async def test_modules_that_reach_out_of_the_session_are_left_out(home: Home, work: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = STAND_INS / "mcp_server.py"
    command = ["-c", f"touch '{started}'; exec '{sys.executable}' '{program}' stdio"]
    servers = {"stand-in": {"command": "/bin/sh", "args": command}}
    agent = Agent(
        [call("mcp_stand-in_look", text="hello"), "Seen."],
        tools=[FILES, {"module": "tool-mcp", "config": {"servers": servers}}],
        hooks=[{"module": "hooks-backup", "config": {"backup_dir": "kept", "per_turn": True}}],
    )
    session_id = await record(home, work, agent, ("Look",), approver=AllowByRule(["*"]))
    (request, _) = await requests(home.sessions.runtime.store, session_id)
    assert "mcp_stand-in_look" in [tool["name"] for tool in request.tools]
    started.unlink()
    shutil.rmtree(work / "kept")

    result = await home.sessions.replay(session_id)

    assert (result.status, result.replayed) == ("same", 2), str(result)
    assert not started.exists()
    assert not (work / "kept").exists()
