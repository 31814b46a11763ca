"""Idle sessions give their modules back, and have them again when they are needed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call
from waiting_tool import WaitingTool

import amplifierd
from amplifierd.home import Home
from amplifierd.sessions.events.tree_events import Subscription
from amplifierd.sessions.session import Session

Open = Callable[..., Home]


@pytest.fixture
async def open_home(tmp_path: Path) -> AsyncIterator[Open]:
    homes: list[Home] = []

    def begin(**sessions: Any) -> Home:
        homes.append(amplifierd.open_home(tmp_path / "home", offline=True, overrides={"sessions": sessions}))
        return homes[-1]

    yield begin
    for home in homes:
        await home.sessions.close()


async def unloaded(watching: Subscription, session: Session) -> None:
    """Wait until the modules of a session have ended."""
    if session.activity is None:
        return
    async for event in watching:
        if event["event"] == "session:status" and event["data"]["activity"] is None:
            assert event["session_id"] == session.session_id
            return


async def test_an_idle_session_is_unloaded_and_its_next_turn_knows_everything(open_home: Open, work: Path) -> None:
    home = open_home(idle_unload_minutes=0.0005)
    echo = {"text": "Heard {{last_user}}", "repeat": True}
    async with home.sessions.open(plan=Agent([echo]).sections(), working_dir=work) as session:
        watching = home.sessions.subscribe()
        await session.execute("First")
        await unloaded(watching, session)
        assert home.sessions.holder(session.session_id) is not None

        again = await session.execute("Second")

        assert (again.status, again.turn) == ("completed", 2)
        request = home.sessions.request(session.session_id, home.sessions.requests(session.session_id)[-1].request_id)
        said = str([part.message for part in request.parts])
        assert "First" in said
        assert "Second" in said


async def test_what_is_done_with_an_unloaded_session_loads_it_first(open_home: Open, work: Path) -> None:
    home = open_home(idle_unload_minutes=0.0005)
    async with home.sessions.open(plan=Agent(["One.", "Two."]).sections(), working_dir=work) as session:
        watching = home.sessions.subscribe()
        await session.execute("First")
        await unloaded(watching, session)

        await session.append_message("user", "By the way")
        await home.sessions.rename(session.session_id, "Named")
        await home.sessions.truncate(session.session_id, 1)

        assert "read_file" in ((await session.load()).get("tools") or {})
        assert (await session.execute("Second")).turn == 2
    assert home.sessions.get(session.session_id).name == "Named"


async def test_beyond_the_most_the_session_that_is_idle_longest_is_unloaded(open_home: Open, work: Path) -> None:
    home = open_home(max_loaded=2)
    plan = Agent(["Here."]).sections()
    sessions = [await home.sessions.open(plan=plan, working_dir=work) for _ in range(2)]
    first, second = sessions
    await first.execute("I am younger now")
    watching = home.sessions.subscribe()

    sessions.append(await home.sessions.open(plan=plan, working_dir=work))
    await unloaded(watching, second)

    assert [session.activity for session in sessions] == ["idle", None, "idle"]
    assert (await second.execute("Hello")).status == "completed"
    await unloaded(watching, first)
    assert [session.activity for session in sessions] == [None, "idle", "idle"]


async def test_a_session_that_works_is_never_unloaded(open_home: Open, work: Path) -> None:
    home = open_home(max_loaded=1, idle_unload_minutes=0.0005)
    async with home.sessions.open(plan=Agent([call("wait_here"), "Done."]).sections(), working_dir=work) as session:
        tool = await WaitingTool().mount(session)
        running = asyncio.create_task(session.execute("Wait"))
        await tool.is_running.wait()
        watching = home.sessions.subscribe()

        async with home.sessions.open(plan=Agent().sections(), working_dir=work) as other:
            await unloaded(watching, other)
            assert session.activity == "executing"
        tool.go.set()

        assert (await running).response == "Done."


async def test_a_turn_that_takes_too_long_is_cancelled(open_home: Open, work: Path) -> None:
    home = open_home(turn_timeout_seconds=0.05)
    async with home.sessions.open(plan=Agent([call("wait_here"), "Never."]).sections(), working_dir=work) as session:
        await WaitingTool().mount(session)

        with pytest.raises(TimeoutError):
            await session.execute("Wait")

        assert session.activity == "idle"


async def test_ended_sessions_are_kept_for_as_long_as_the_settings_say(open_home: Open, work: Path) -> None:
    home = open_home(retention_days=1)
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work)
    await home.sessions.end(created.session_id)
    file = home.paths.sessions / created.session_id / "metadata.json"
    ended = home.sessions.get(created.session_id).ended_at
    before = (datetime.now(UTC) - timedelta(days=2)).isoformat().replace("+00:00", "Z")
    file.write_text(file.read_text().replace(str(ended), before))

    assert await open_home().sessions.cleanup() == ()
    assert await home.sessions.cleanup() == (created.session_id,)
