"""Sessions that are open: shared in one process, changed meanwhile, and closed at any moment."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call
from waiting_tool import WaitingTool

from amplifierd.exceptions import ExecutionInProgressError, SessionNotFoundError, SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.session import Session

WAIT = call("wait_here")
SLOW_HELPER = {
    "instruction": "You take your time.",
    "providers": [{"module": "provider-mock", "config": {"script": [{"text": "Late.", "latency_ms": 60_000}]}}],
}


def delegating() -> Agent:
    script = [call("task", agent="helper", instruction="Take your time"), "Done."]
    return Agent(script, tools=[{"module": "tool-task"}], agents={"helper": SLOW_HELPER})


async def running_child(session: Session) -> tuple[asyncio.Task[Any], str]:
    """Return a turn that delegates, and the child once it is at work."""
    turn = asyncio.create_task(session.execute("Ask the helper"))
    async for event in session.subscribe():
        if event["event"] == "provider:request" and event["session_id"] != session.session_id:
            return turn, str(event["session_id"])
    raise AssertionError("no child was started")


async def test_a_session_that_is_open_twice_ends_with_its_last_user(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["One.", "Two."]).sections(), working_dir=work) as first:
        async with home.sessions.resume(first.session_id) as second:
            assert (await second.execute("A")).response == "One."
        assert (await first.execute("B")).response == "Two."
        assert home.sessions.holder(first.session_id) is not None

    assert home.sessions.holder(first.session_id) is None


async def test_closing_twice_takes_the_session_from_no_one_else(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent().sections(), working_dir=work) as first:
        second = await home.sessions.resume(first.session_id)
        await second.close()
        await second.close()

        assert (await first.execute("Still there?")).status == "completed"
        with pytest.raises(SessionStateError, match="is closed"):
            await second.execute("And you?")


async def test_a_session_is_opened_by_two_at_the_same_moment(home: Home, work: Path) -> None:
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work)

    one, other = await asyncio.gather(*(home.sessions.resume(created.session_id) for _ in range(2)))

    assert (await one.execute("Hello")).turn == 1
    assert (await other.execute("Hello")).turn == 2
    await asyncio.gather(one.close(), other.close())
    assert home.sessions.holder(created.session_id) is None


async def test_a_session_opens_while_another_one_is_slow_to_open(home: Home, work: Path) -> None:
    created = [await home.sessions.create(plan=Agent().sections(), working_dir=work) for _ in range(20)]

    opened = await asyncio.gather(*(home.sessions.resume(record.session_id) for record in created))

    results = await asyncio.gather(*(session.execute("Hello") for session in opened))
    assert {result.status for result in results} == {"completed"}
    await asyncio.gather(*(session.close() for session in opened))


async def test_a_session_that_was_only_created_is_active_once_it_is_opened(home: Home, work: Path) -> None:
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work, start=False)

    async with home.sessions.resume(created.session_id) as session:
        assert (created.status, created.started_at) == ("created", None)
        assert session.record.status == "active"
        assert session.record.started_at is not None


async def test_closing_ends_the_running_turn_properly_and_turns_waiting_prompts_away(home: Home, work: Path) -> None:
    session = await home.sessions.open(plan=Agent([WAIT, "Never."]).sections(), working_dir=work)
    tool = await WaitingTool().mount(session)
    running = asyncio.create_task(session.execute("Wait"))
    waiting = asyncio.create_task(session.execute("Then this", queue=True))
    await tool.is_running.wait()

    await session.close()

    assert (await running).status == "cancelled"
    with pytest.raises(SessionStateError, match="is closed"):
        await waiting
    assert tool.was_cancelled
    names = [event["event"] for event in home.sessions.events(session.session_id)]
    assert names.count("execution:done") == 1
    assert home.sessions.get(session.session_id).turn_count == 1
    assert home.sessions.holder(session.session_id) is None
    with pytest.raises(SessionStateError, match="is closed"):
        await session.execute("Once more")


async def test_a_turn_that_is_cancelled_before_it_reaches_the_model_does_not_reach_it(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["Said."]).sections(), working_dir=work) as session:
        running = asyncio.create_task(session.execute("Hello"))
        async for event in session.subscribe():
            if event["event"] == "user_message:saved":
                break
        await session.cancel()
        result = await running
        again = await session.execute("Hello")

    assert (result.status, result.response) == ("cancelled", "")
    assert (again.status, again.response) == ("completed", "Said.")


@pytest.mark.parametrize("heard", [0, 1, 2, 3, 5, 8, 13, 21, 30])
async def test_a_turn_has_its_end_written_down_wherever_its_task_is_cancelled(
    home: Home, work: Path, heard: int
) -> None:
    read = call("read_file", file_path="notes.md")
    async with home.sessions.open(plan=Agent([read, "Milk.", "Hm."]).sections(), working_dir=work) as session:
        watching = session.subscribe()
        running = asyncio.create_task(session.execute("Read"))
        await asyncio.sleep(0)
        events = aiter(watching)
        for _ in range(heard):
            await anext(events)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        again = await session.execute("Hello")

    assert (again.status, again.turn) == ("completed", 2)
    names = [event["event"] for event in home.sessions.events(session.session_id)]
    assert names.count("user_message:saved") == names.count("execution:done") == 2


async def test_ending_a_session_ends_the_child_that_works_for_it(home: Home, work: Path) -> None:
    session = await home.sessions.open(plan=delegating().sections(), working_dir=work)
    turn, child = await running_child(session)

    await home.sessions.end(session.session_id)

    assert (await turn).status == "cancelled"
    assert {home.sessions.get(member).status for member in (session.session_id, child)} == {"completed"}
    assert home.sessions.holder(child) is None


async def test_deleting_with_force_stops_what_runs_and_leaves_nothing(home: Home, work: Path) -> None:
    session = await home.sessions.open(plan=delegating().sections(), working_dir=work)
    turn, child = await running_child(session)

    for busy in (child, session.session_id):
        with pytest.raises(ExecutionInProgressError):
            await home.sessions.delete(busy)
    await home.sessions.delete(session.session_id, force=True)

    assert (await turn).status == "cancelled"
    for gone in (session.session_id, child):
        with pytest.raises(SessionNotFoundError):
            home.sessions.get(gone)


async def test_a_child_at_work_is_deleted_and_its_parent_goes_on(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=delegating().sections(), working_dir=work) as session:
        turn, child = await running_child(session)
        await home.sessions.rename(child, "Slow")
        await home.sessions.delete(child, force=True)

        assert (await turn).response == "Done."
        assert home.sessions.children(session.session_id) == ()


@pytest.mark.parametrize("is_open", [False, True])
async def test_changes_made_at_the_same_moment_lose_nothing(home: Home, work: Path, is_open: bool) -> None:
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work)
    session = await home.sessions.resume(created.session_id) if is_open else None

    tags = [f"tag-{number}" for number in range(30)]
    await asyncio.gather(*(home.sessions.tag(created.session_id, add=[tag]) for tag in tags))

    assert sorted(home.sessions.get(created.session_id).tags) == sorted(tags)
    if session is not None:
        await session.close()


async def test_a_stream_that_waited_has_the_events_of_its_own_turn_only(home: Home, work: Path) -> None:
    agent = Agent([{"text": "First.", "latency_ms": 50}, "Second."])
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        first = asyncio.create_task(session.execute("One"))
        await asyncio.sleep(0)
        events = [event async for event in session.stream("Two", queue=True)]
        await first

    assert {event["correlation_id"] for event in events} == {f"prompt_{session.session_id}_2"}
    assert (events[0]["event"], events[-1]["event"]) == ("user_message:saved", "execution:done")


async def test_whoever_stops_waiting_stops_agents_of_agents_and_all_of_them_are_written_down(
    home: Home, work: Path
) -> None:
    script = [call("task", agent="slow", instruction="Take your time"), "Done."]
    between = {"instruction": "You delegate.", "providers": [{"module": "provider-mock", "config": {"script": script}}]}
    agent = Agent(
        [call("task", agent="between", instruction="Delegate"), "Done."],
        tools=[{"module": "tool-task", "config": {"max_recursion_depth": 5}}],
        agents={"slow": SLOW_HELPER, "between": between},
    )
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        turn = asyncio.create_task(session.execute("Go"))
        async for event in session.subscribe():
            if event["event"] == "provider:request" and event.get("nesting_depth") == 2:
                break
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        below = home.sessions.children(session.session_id)

        assert len(below) == 2
        for member in (session.session_id, *(child.session_id for child in below)):
            names = [event["event"] for event in home.sessions.events(member)]
            assert names.count("execution:done") == 1
        assert {home.sessions.holder(child.session_id) for child in below} == {None}
