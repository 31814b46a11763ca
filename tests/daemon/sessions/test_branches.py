"""Sessions made of others, and what can be changed about a session: forks, clones, switches, ends, removals."""

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, Kind, call

from amplifierd.exceptions import (
    ExecutionInProgressError,
    InvalidSessionIdError,
    InvalidTurnError,
    MountPlanError,
    SessionExistsError,
    SessionNotFoundError,
    SessionStateError,
)
from amplifierd.home import Home
from amplifierd.store.record import now

TALK = ["One.", "Two.", "Three."]


async def talked(home: Home, work: Path, source: dict[str, Any], turns: int = 2) -> str:
    async with home.sessions.open(**source, working_dir=work, name="talk", tags=["a"]) as session:
        for number in range(turns):
            await session.execute(f"Prompt {number + 1}")
    return session.session_id


def prompts(home: Home, session_id: str) -> list[Any]:
    return [message["content"] for message in home.sessions.messages(session_id) if message["role"] == "user"]


async def test_a_fork_goes_on_from_any_turn_and_leaves_the_original_alone(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    original = await talked(home, work, Agent(TALK).source(home, kind, tmp_path))
    before = home.sessions.messages(original)

    fork = await home.sessions.fork(original, 1)
    async with home.sessions.resume(fork.session_id) as session:
        result = await session.execute("Another way")

    assert (fork.parent_session_id, fork.forked_from_turn, fork.turn_count) == (original, 1, 1)
    assert (result.turn, prompts(home, fork.session_id)) == (2, ["Prompt 1", "Another way"])
    assert home.sessions.messages(original) == before
    assert home.sessions.children(original) == ()


async def test_a_long_session_is_continued_and_copied_without_its_events_in_memory(
    home: Home, work: Path, tmp_path: Path
) -> None:
    original = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path), turns=1)
    store = home.sessions.runtime.store
    hold, last = await store.acquire(original, home.sessions.runtime.holder), await store.last_cursor(original)
    long = {"ts": now(), "lvl": "INFO", "event": "llm:response", "data": {"raw": "x" * 99_000}}
    lines = [{"seq": last.seq + number, "epoch": last.epoch, **long} for number in range(1, 201)]
    await store.append_events(hold, lines)
    await store.update(hold, usage_seq=lines[-1]["seq"])
    await store.release(hold)
    async with home.sessions.resume(original) as session:
        await session.execute("Go on")

    tracemalloc.start()
    try:
        await (await home.sessions.resume(original)).close()
        copy = await home.sessions.clone(original)
        peak_mib = tracemalloc.get_traced_memory()[1] / (1 << 20)
    finally:
        tracemalloc.stop()

    assert peak_mib < 10
    events, copied = [await store.read_events(one) for one in (original, copy.session_id)]
    assert [one["seq"] for one in copied][:-1] == [one["seq"] for one in events]


async def test_a_fork_into_another_profile_runs_the_other_agent(home: Home, work: Path, tmp_path: Path) -> None:
    original = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path))
    Agent(["I am the other one."], instruction="Be another.").source(home, "profile", tmp_path)

    fork = await home.sessions.fork(original, 1, profile="local/worker")
    async with home.sessions.resume(fork.session_id) as session:
        result = await session.execute("Who are you?")

    assert (fork.profile_name, result.response) == ("local/worker", "I am the other one.")
    assert prompts(home, fork.session_id) == ["Prompt 1", "Who are you?"]


@pytest.mark.parametrize("turn", [0, 3, -1])
async def test_a_turn_out_of_range_cannot_be_forked(home: Home, work: Path, tmp_path: Path, turn: int) -> None:
    original = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path))

    with pytest.raises(InvalidTurnError, match="out of range"):
        await home.sessions.fork(original, turn)

    assert home.sessions.list().total == 1


async def test_a_switch_keeps_the_history_and_archives_the_plan(home: Home, work: Path, tmp_path: Path) -> None:
    session_id = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path))
    Agent(["Another agent."]).source(home, "profile", tmp_path)

    async with home.sessions.resume(session_id) as session:
        record = await home.sessions.change_profile(session_id, "local/worker")
        result = await session.execute("Prompt 3")

    assert (record.profile_name, result.response, result.turn) == ("local/worker", "Another agent.", 3)
    assert prompts(home, session_id) == ["Prompt 1", "Prompt 2", "Prompt 3"]
    assert "session:profile_changed" in [event["event"] for event in home.sessions.events(session_id)]
    directory = home.paths.sessions / session_id
    assert (directory / "mount_plan.1.json").is_file()


async def test_a_switch_that_fails_leaves_the_session_as_it_was(home: Home, work: Path, tmp_path: Path) -> None:
    session_id = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path))
    plan = home.sessions.plan(session_id)

    with pytest.raises(Exception, match="nowhere"):
        await home.sessions.change_profile(session_id, "local/nowhere")

    assert home.sessions.plan(session_id) == plan
    async with home.sessions.resume(session_id) as session:
        assert (await session.execute("Prompt 3")).status == "completed"


async def test_a_shortened_conversation_is_what_the_model_sees_next(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    agent = Agent(["One.", "Two.", {"text": "{{call_count}}"}])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("Prompt 1")
        await session.execute("Prompt 2")
        await home.sessions.truncate(session.session_id, 1)
        result = await session.execute("Prompt again")

    assert result.turn == 2
    assert prompts(home, session.session_id) == ["Prompt 1", "Prompt again"]
    context = [part for request in home.sessions.requests(session.session_id)[-1:] for part in request.parts]
    assert "Prompt 2" not in str(context)


async def test_the_last_message_can_be_deleted_and_one_can_be_appended(home: Home, work: Path, tmp_path: Path) -> None:
    session_id = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path), turns=1)

    deleted = await home.sessions.delete_last_message(session_id)
    async with home.sessions.resume(session_id) as session:
        await session.append_message("assistant", "What I meant: one.")

    assert deleted is not None
    assert deleted["role"] == "assistant"
    assert [m["content"] for m in home.sessions.messages(session_id)] == ["Prompt 1", "What I meant: one."]


@pytest.mark.parametrize("is_open", [True, False])
async def test_each_message_that_is_deleted_is_told_of(home: Home, work: Path, is_open: bool) -> None:
    session = await home.sessions.open(plan=Agent([call("nothing"), *TALK]).sections(), working_dir=work)
    for prompt in ("Prompt 1", "Prompt 2"):
        await session.execute(prompt)
    if not is_open:
        await session.close()
    before = home.sessions.messages(session.session_id)

    for undo in (home.sessions.delete_last_message, lambda session_id: home.sessions.truncate(session_id, 0)):
        await undo(session.session_id)
        count = home.sessions.get(session.session_id).message_count
        assert told(home, session.session_id) == [
            {"message_id": one["id"], "role": one["role"], "content": one["content"], "turn": one["turn"]}
            for one in reversed(before[count:])
        ]
        last = home.sessions.events(session.session_id)[-1]
        assert (last["event"], last["data"]["fields_changed"]) == ("session:updated", ["message_count", "turn_count"])

    assert [one["role"] for one in before] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    await session.close()


def told(home: Home, session_id: str) -> list[Any]:
    events = home.sessions.events(session_id)
    return [event["data"] for event in events if event["event"] == "message:deleted"]


async def test_states_follow_their_table(home: Home, work: Path, tmp_path: Path) -> None:
    session_id = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path), turns=1)

    ended = await home.sessions.end(session_id, "failed", error_message="it broke")
    with pytest.raises(SessionStateError, match="failed"):
        await home.sessions.end(session_id)
    async with home.sessions.resume(session_id) as session:
        again = session.record

    assert (ended.status, ended.error_message, bool(ended.ended_at)) == ("failed", "it broke", True)
    assert (again.status, again.ended_at) == ("active", None)
    created = await home.sessions.create(**Agent().source(home, "plan", tmp_path), working_dir=work, start=False)
    assert created.status == "created"
    with pytest.raises(SessionStateError):
        await home.sessions.end(created.session_id)


async def test_names_tags_and_metadata_can_be_changed_and_nothing_else(home: Home, work: Path, tmp_path: Path) -> None:
    session_id = await talked(home, work, Agent(TALK).source(home, "plan", tmp_path), turns=1)

    await home.sessions.rename(session_id, "Another name")
    record = await home.sessions.tag(session_id, add=["b", "a"], remove=["c"])
    cleared = await home.sessions.rename(session_id, "")

    assert (record.name, record.tags) == ("Another name", ["a", "b"])
    assert cleared.name is None
    assert cleared.revision == record.revision + 1
    with pytest.raises(SessionStateError, match="turn_count"):
        await home.sessions.update(session_id, turn_count=7)


async def test_a_running_session_is_deleted_only_by_force(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent([{"text": "Late.", "latency_ms": 60_000}]).source(home, "plan", tmp_path)
    session = await home.sessions.open(**source, working_dir=work)
    running = asyncio.create_task(session.execute("Wait"))
    async for event in session.subscribe():
        if event["event"] == "provider:request":
            break

    with pytest.raises(ExecutionInProgressError):
        await home.sessions.delete(session.session_id)
    await home.sessions.delete(session.session_id, force=True)
    await asyncio.gather(running, return_exceptions=True)

    with pytest.raises(SessionNotFoundError):
        home.sessions.get(session.session_id)


async def test_cleanup_removes_old_ended_sessions_and_never_active_ones(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent(TALK).source(home, "plan", tmp_path)
    active, ended = await talked(home, work, source, turns=1), await talked(home, work, source, turns=1)
    await home.sessions.end(ended)

    dry = await home.sessions.cleanup(older_than_days=-1, dry_run=True)
    removed = await home.sessions.cleanup(older_than_days=-1)

    assert (tuple(dry), tuple(removed)) == ((ended,), (ended,))
    assert [record.session_id for record in home.sessions.list()] == [active]


async def test_ids_are_checked_and_taken_only_once(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent().source(home, "plan", tmp_path)
    await home.sessions.create(**source, working_dir=work, session_id="mine")

    with pytest.raises(SessionExistsError):
        await home.sessions.create(**source, working_dir=work, session_id="mine")
    for bad in ("../mine", "", "a/b", ".hidden", "x" * 201):
        with pytest.raises(InvalidSessionIdError):
            home.sessions.get(bad)


async def test_a_plan_that_breaks_rules_is_refused_with_every_issue(home: Home, work: Path) -> None:
    with pytest.raises(MountPlanError) as caught:
        await home.sessions.create(plan={"session": {"orchestrator": 3}}, working_dir=work)

    assert len(caught.value.issues) >= 2
    assert home.sessions.list().total == 0


async def test_search_finds_what_was_said(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent(["The quokka smiles."]).source(home, "plan", tmp_path)
    session_id = await talked(home, work, source, turns=1)

    (hit,) = home.sessions.search("quokka")

    assert (hit.record.session_id, "quokka" in hit.snippet) == (session_id, True)


async def test_overrides_change_the_plan_of_one_session(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    source = Agent(["From the agent."]).source(home, kind, tmp_path)
    overrides = {"providers": [{"module": "provider-mock", "config": {"script": ["From the request."]}}]}

    async with home.sessions.open(**source, working_dir=work, overrides=overrides) as session:
        result = await session.execute("Who speaks?")

    assert result.response == "From the request."


async def test_a_tool_that_is_denied_is_told_so(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    hooks = [{"module": "hooks-approval", "required": True}]
    agent = Agent([call("bash", command="touch made"), "So be it."], tools=[{"module": "tool-bash"}], hooks=hooks)
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        result = await session.execute("Make it")

    assert [(summary.name, summary.status) for summary in result.tool_calls] == [("bash", "denied")]
    assert not (work / "made").exists()


async def test_a_newer_build_is_told_and_the_session_keeps_its_own(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent(["Old.", "Old again."]).source(home, "profile", tmp_path)
    session_id = await talked(home, work, source, turns=1)
    pinned = home.sessions.get(session_id).build_id
    Agent(["New."]).source(home, "profile", tmp_path)
    for _ in range(3):
        newest = await home.profiles.compile("local/worker", force=True)

    async with home.sessions.resume(session_id) as session:
        result = await session.execute("Again")
        stale = session.record
    switched = await home.sessions.change_profile(session_id, "local/worker")
    async with home.sessions.resume(session_id) as session:
        after = await session.execute("And now?")

    assert (stale.stale, stale.build_id, result.response) == (True, pinned, "Old.")
    assert (switched.stale, switched.build_id, after.response) == (False, newest.build_id, "New.")
