"""Deleted sessions: for some time they can be brought back, with everything that belongs to them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call

import amplifierd
from amplifierd.exceptions import SessionNotFoundError, SessionStateError
from amplifierd.home import Home

HELPER = {"description": "Helps", "providers": [{"module": "provider-mock", "config": {"script": ["Milk."]}}]}
DELEGATING = Agent(
    [call("task", agent="helper", instruction="Read"), "Done."],
    tools=[{"module": "tool-task"}],
    agents={"helper": HELPER},
)

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


async def delegated(home: Home, work: Path) -> tuple[str, str]:
    """Return a session and that of its agent."""
    async with home.sessions.open(plan=DELEGATING.sections(), working_dir=work) as session:
        await session.execute("Ask the helper")
    (child,) = home.sessions.children(session.session_id)
    return session.session_id, child.session_id


def in_trash(home: Home) -> list[str]:
    return sorted(one.record.session_id for one in home.sessions.deleted())


async def test_a_session_comes_back_with_its_agents_and_goes_on(home: Home, work: Path) -> None:
    root, child = await delegated(home, work)
    said = home.sessions.messages(root)
    watching = home.sessions.subscribe()

    await home.sessions.delete(root)
    assert in_trash(home) == sorted((root, child))
    assert home.sessions.list().total == 0
    assert home.sessions.search("milk") == ()
    with pytest.raises(SessionNotFoundError):
        home.sessions.get(root)
    restored = await home.sessions.restore(root)

    assert (restored.session_id, in_trash(home)) == (root, [])
    assert [below.session_id for below in home.sessions.children(root)] == [child]
    assert home.sessions.messages(root) == said
    assert {hit.record.session_id for hit in home.sessions.search("milk")} >= {child}
    async with home.sessions.resume(root) as session:
        assert (await session.execute("Go on")).turn == 2
    watching.close()
    told = [(event["event"], event["session_id"], event["data"]) async for event in watching]
    life = [(name, session_id) for name, session_id, _ in told if name in ("session:deleted", "session:restored")]
    assert life[:2] == [("session:deleted", child), ("session:deleted", root)]
    assert life[2:] == [("session:restored", root), ("session:restored", child)]
    (facts,) = (data for name, session_id, data in told if (name, session_id) == ("session:restored", root))
    assert facts == {
        "session_id": root,
        "name": None,
        "profile_name": None,
        "working_dir": str(work),
        "created_by": "user",
    }
    numbers = [event["seq"] for member in (root, child) for event in home.sessions.events(member)]
    assert len(numbers) == len(set(numbers))


async def test_an_agent_does_not_come_back_without_the_session_it_worked_for(home: Home, work: Path) -> None:
    root, child = await delegated(home, work)
    await home.sessions.delete(root)

    with pytest.raises(SessionStateError, match=root):
        await home.sessions.restore(child)

    await home.sessions.restore(root)
    await home.sessions.delete(child)
    assert in_trash(home) == [child]
    await home.sessions.restore(child)
    assert [below.session_id for below in home.sessions.children(root)] == [child]


async def test_what_is_deleted_forever_takes_its_agents_out_of_the_trash(home: Home, work: Path) -> None:
    root, child = await delegated(home, work)
    await home.sessions.delete(child)

    await home.sessions.delete(root, forever=True)

    assert in_trash(home) == []
    for member in (root, child):
        with pytest.raises(SessionNotFoundError):
            await home.sessions.restore(member)
    assert not [path for path in home.paths.sessions.rglob("*") if path.is_file()]


async def test_a_session_can_be_removed_from_the_trash(home: Home, work: Path) -> None:
    root, _ = await delegated(home, work)
    await home.sessions.delete(root)

    await home.sessions.purge(root)

    assert in_trash(home) == []
    with pytest.raises(SessionNotFoundError):
        await home.sessions.purge(root)


async def test_the_trash_is_emptied_after_as_many_days_as_the_settings_say(open_home: Open, work: Path) -> None:
    home = open_home(trash_days=2)
    old, young = [await home.sessions.create(plan=Agent().sections(), working_dir=work) for _ in range(2)]
    for record in (old, young):
        await home.sessions.delete(record.session_id)
    trash = home.paths.sessions / ".trash"
    (entry,) = trash.glob(f"*{old.session_id}")
    entry.rename(trash / f"20200101T000000.000000Z~{old.session_id}")

    assert await home.sessions.empty_trash(dry_run=True) == (old.session_id,)
    assert in_trash(home) == sorted((old.session_id, young.session_id))
    assert await open_home(trash_days=5_000).sessions.empty_trash() == ()
    assert await home.sessions.empty_trash() == (old.session_id,)
    assert in_trash(home) == [young.session_id]


async def test_without_a_trash_a_deleted_session_is_gone(open_home: Open, work: Path) -> None:
    home = open_home(trash_days=0)
    record = await home.sessions.create(plan=Agent().sections(), working_dir=work)

    await home.sessions.delete(record.session_id)

    assert in_trash(home) == []
