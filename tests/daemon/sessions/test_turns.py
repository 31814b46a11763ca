"""Turns of sessions, which are the same whatever describes the agent: a profile, a bundle or a plan."""

import asyncio
import threading
from pathlib import Path

import pytest
from agents_at_work import Agent, Kind, call
from waiting_tool import WaitingTool

from amplifierd import open_home
from amplifierd.exceptions import ExecutionInProgressError, HoldLostError, QueueFullError, SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.events.tree_events import Event, is_delta

READ = call("read_file", file_path="notes.md")
SLOW = {"latency_ms": 60_000}


async def test_a_turn_runs_its_tools_and_answers(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent([READ, "They say: {{last_tool_result}}"])

    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        result = await session.execute("What do the notes say?")

    assert result.status == "completed"
    assert "buy milk" in result.response
    assert [(summary.name, summary.status) for summary in result.tool_calls] == [("read_file", "done")]
    assert (result.turn, result.finish_reason, result.usage["tool_calls"]) == (1, "stop", 1)


async def test_what_was_said_is_in_the_transcript(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent([READ, "Milk."])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("What do the notes say?")

    messages = home.sessions.messages(session.session_id)

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert {message["turn"] for message in messages} == {1}
    assert len({message["id"] for message in messages}) == 4


async def test_a_resumed_session_goes_on_with_its_history(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent([READ, "Milk.", {"text": "You asked: {{last_user}}", "assert": {"min_messages": 5}}])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("What do the notes say?")

    async with home.sessions.resume(session.session_id) as resumed:
        result = await resumed.execute("And again?")

    assert (result.turn, result.status, bool(resumed.repaired)) == (2, "completed", False)
    assert home.sessions.get(session.session_id).turn_count == 2


async def test_whoever_hears_of_the_end_of_a_turn_finds_it_counted(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    found = []

    def look(event: Event) -> bool:
        if event["event"] == "execution:done":
            record = home.sessions.get(event["session_id"])
            found.append((event["data"]["turn"], record.turn_count, record.message_count))
        return False

    async with home.sessions.open(
        **Agent(["Milk.", "Bread."]).source(home, kind, tmp_path), working_dir=work
    ) as session:
        session.subscribe(look)
        await session.execute("What?")
        await session.execute("And?")

    assert found == [(1, 1, 2), (2, 2, 4)]


async def test_a_turn_whose_session_is_taken_over_at_its_very_end_is_ended_by_its_next_holder(
    work: Path, tmp_path: Path
) -> None:
    home = open_home(tmp_path / "home", offline=True, overrides={"checkpoints": {"enabled": False}})
    store = open_home(tmp_path / "home").sessions.runtime.store

    def take_over(event: Event) -> bool:
        if event["event"] == "orchestrator:complete":  # the last one before the end is written down
            taking = store.acquire(event["session_id"], home.sessions.runtime.holder, take_over=True)
            thread = threading.Thread(target=asyncio.run, args=[taking])
            thread.start()
            thread.join()
        return False

    async with home.sessions.open(plan=Agent(["Milk."]).sections(), working_dir=work) as session:
        session.subscribe(take_over)
        with pytest.raises(HoldLostError):
            await session.execute("What?")

    async with home.sessions.resume(session.session_id, take_over=True):
        ends = [one for one in await store.read_events(session.session_id) if one["event"] == "execution:done"]
    assert [end["data"]["status"] for end in ends] == ["completed"]
    await home.sessions.close()


async def test_events_come_in_order_and_end_with_execution_done(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    agent = Agent([READ, "Milk."])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        events = [event async for event in session.stream("What do the notes say?")]

    names = [event["event"] for event in events]
    sequence = [event["sequence"] for event in events if not is_delta(event["event"])]
    assert names[:2] == ["user_message:saved", "assistant_message:start"]
    assert names[-2:] == ["assistant_message:complete", "execution:done"]
    assert names.count("execution:done") == 1
    assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
    assert names.index("tool:intent") < names.index("tool:outcome") < names.index("tool:post")
    stored = [event["seq"] for event in home.sessions.events(session.session_id)]
    assert stored == sorted(stored)


async def test_a_failed_turn_leaves_the_session_usable(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent([{"error": {"type": "AuthenticationError", "message": "no such key"}}, "Here I am."])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        failed = await session.execute("Hello?")
        again = await session.execute("Hello?")

    assert (failed.status, failed.response) == ("failed", "")
    assert failed.error is not None
    assert (failed.error["code"], failed.error["status"]) == ("provider-auth", 502)
    assert (again.status, again.response) == ("completed", "Here I am.")
    roles = [message["role"] for message in home.sessions.messages(session.session_id)]
    assert roles == ["user", "user", "assistant"]


async def test_one_turn_at_a_time_unless_the_prompt_may_wait(home: Home, work: Path, tmp_path: Path) -> None:
    agent = Agent([{"text": "First.", "latency_ms": 100}, "Second."])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        first = asyncio.create_task(session.execute("One"))
        await asyncio.sleep(0)
        with pytest.raises(ExecutionInProgressError):
            await session.execute("Two")
        second = await session.execute("Two", queue=True)

    assert (first.result().response, second.response) == ("First.", "Second.")


async def test_the_queue_is_bounded_and_can_be_read_and_shortened(tmp_path: Path, work: Path) -> None:
    import amplifierd

    home = amplifierd.open_home(tmp_path / "home", offline=True, overrides={"sessions": {"max_queue": 2}})
    agent = Agent([SLOW])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        running = [asyncio.create_task(session.execute(prompt, queue=True)) for prompt in ("One", "Two", "Three")]
        await asyncio.sleep(0.05)
        assert session.queued() == ["Two", "Three"]
        with pytest.raises(QueueFullError):
            await session.execute("Four", queue=True)
        assert await session.remove_queued(1) == "Two"
        assert session.queued() == ["Three"]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_prompts_that_waited_when_a_session_was_closed_are_held_until_they_are_sent_again(
    home: Home, work: Path, tmp_path: Path
) -> None:
    agent = Agent([call("wait_here"), "Done."])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        await WaitingTool().mount(session)
        running = [asyncio.create_task(session.execute(prompt, queue=True)) for prompt in ("One", "Two", "Three")]
        async for event in session.subscribe():
            if event["event"] == "execution:queued" and event["data"]["position"] == 2:
                break
    await asyncio.gather(*running, return_exceptions=True)

    async with home.sessions.resume(session.session_id) as session:
        assert (session.queued(), session.held, session.activity) == (["Two", "Three"], 2, "idle")
        await session.execute("Two")
        assert (session.queued(), session.held) == (["Three"], 1)
    async with home.sessions.resume(session.session_id) as session:
        assert await session.remove_queued(1) == "Three"
    async with home.sessions.resume(session.session_id) as session:
        assert session.queued() == []
    said = [one["content"] for one in home.sessions.messages(session.session_id) if one["role"] == "user"]
    assert said == ["One", "Two"]


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_cancelled_turn_ends_as_cancelled_and_the_next_one_runs(
    home: Home, work: Path, tmp_path: Path, kind: Kind, immediate: bool
) -> None:
    agent = Agent([{"text": "one two three four five", "latency_ms": 0}, "Later."], provider={"stream_delay_ms": 200})
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        running = asyncio.create_task(session.execute("Count"))
        async for event in session.subscribe():
            if event["event"] == "llm:stream_block_delta":
                break
        state = await session.cancel(immediate=immediate)
        cancelled = await running
        again = await session.execute("Once more")

    assert state["state"] == ("immediate" if immediate else "graceful")
    assert cancelled.status == "cancelled" if immediate else cancelled.status in ("cancelled", "completed")
    assert again.status == "completed"


async def test_a_turn_that_takes_too_long_is_cancelled(home: Home, work: Path, tmp_path: Path) -> None:
    agent = Agent([{**SLOW, "when": {"contains": "Wait"}}, "Quick."])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        with pytest.raises(TimeoutError):
            await session.execute("Wait", timeout_s=0.05)
        result = await session.execute("Now")

    assert result.status == "completed"


async def test_a_turn_whose_caller_leaves_is_cancelled_and_leaves_no_error(
    home: Home, work: Path, tmp_path: Path
) -> None:
    async with home.sessions.open(**Agent([SLOW]).source(home, "plan", tmp_path), working_dir=work) as session:
        running = asyncio.create_task(session.execute("Wait"))
        async for event in session.subscribe():
            if event["event"] == "provider:request":
                break
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    (done,) = [event for event in home.sessions.events(session.session_id) if event["event"] == "execution:done"]
    assert (done["data"]["status"], done["data"].get("error")) == ("cancelled", None)
    assert home.sessions.get(session.session_id).last_error is None


async def test_a_session_that_cannot_start_leaves_nothing(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent(orchestrator="loop-nowhere")

    with pytest.raises(Exception, match="loop-nowhere"):
        async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work):
            pass

    assert home.sessions.list().total == 0


async def test_a_missing_working_directory_is_named(home: Home, tmp_path: Path) -> None:
    with pytest.raises(SessionStateError, match="nowhere"):
        async with home.sessions.open(plan=Agent().sections(), working_dir=tmp_path / "nowhere"):
            pass
