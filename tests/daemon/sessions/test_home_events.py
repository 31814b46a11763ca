"""What the sessions of a home tell everyone who watches the home."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call
from waiting_tool import WaitingTool

from amplifierd.home import Home
from amplifierd.sessions.events.tree_events import Event
from amplifierd.sessions.questions.approval import ApprovalDecision, Callback

LIFE = ("session:created", "session:updated", "session:deleted", "session:status")
HELPER = {"instruction": "You help.", "providers": [{"module": "provider-mock", "config": {"script": ["Helped."]}}]}
DELEGATING = Agent(
    [call("task", agent="helper", instruction="Help"), "Done."], [{"module": "tool-task"}], agents={"helper": HELPER}
)


class Watcher:
    """Collects the events of a home."""

    def __init__(self, home: Home) -> None:
        self._watching = home.sessions.subscribe()

    async def told(self) -> list[Event]:
        """Stop watching and return everything that came."""
        self._watching.close()
        return [event async for event in self._watching]

    async def lives(self) -> list[tuple[str, Any]]:
        """Return what was told about sessions as a whole."""
        return [(event["event"], event["data"]) for event in await self.told() if event["event"] in LIFE]


@pytest.fixture
def watcher(home: Home) -> Watcher:
    return Watcher(home)


def status(activity: str | None, state: str = "active") -> tuple[str, dict[str, Any]]:
    return "session:status", {"status": state, "activity": activity}


async def test_the_life_of_a_session_is_told(home: Home, work: Path, watcher: Watcher) -> None:
    async with home.sessions.open(plan=Agent().sections(), working_dir=work, name="First") as session:
        await session.execute("Hello")
        await home.sessions.rename(session.session_id, "Second")
    await home.sessions.end(session.session_id)
    await home.sessions.delete(session.session_id)

    told = await watcher.lives()
    created = {"name": "First", "profile_name": None, "working_dir": str(work), "created_by": "user"}
    assert told[0] == ("session:created", {"session_id": session.session_id, **created})
    assert told[1:5] == [status("idle"), status("executing"), status("idle"), told[4]]
    assert told[4] == ("session:updated", {"fields_changed": ["name"], "revision": told[4][1]["revision"]})
    assert told[5] == status(None)
    assert [name for name, _ in told[6:]] == ["session:updated", "session:status", "session:deleted"]
    assert set(told[6][1]["fields_changed"]) == {"status", "ended_at"}
    assert told[7:] == [status(None, "completed"), ("session:deleted", {})]


async def test_a_watched_home_hears_every_event_of_every_session(home: Home, work: Path, watcher: Watcher) -> None:
    async with home.sessions.open(plan=Agent().sections(), working_dir=work) as one:
        own = [event async for event in one.stream("Hello")]
        async with home.sessions.open(plan=Agent().sections(), working_dir=work) as other:
            await other.execute("Hello")

    told = await watcher.told()
    assert [event for event in told if event["session_id"] == one.session_id and event in own] == own
    assert "execution:done" in [event["event"] for event in told if event["session_id"] == other.session_id]


async def test_what_is_told_of_a_session_is_stored_and_numbered_like_its_other_events(home: Home, work: Path) -> None:
    watcher = Watcher(home)
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work)
    await home.sessions.rename(created.session_id, "Not loaded")
    async with home.sessions.resume(created.session_id) as session:
        await session.execute("Hello")
    await home.sessions.tag(created.session_id, add=["late"])

    told = [event for event in await watcher.told() if not event["event"].endswith("delta")]
    stored = home.sessions.events(created.session_id)
    assert [(event["sequence"], event["event"]) for event in told] == [(line["seq"], line["event"]) for line in stored]
    assert [line["seq"] for line in stored] == sorted({line["seq"] for line in stored})
    assert stored[0]["event"] == "session:created"
    assert stored[1]["data"] == {"fields_changed": ["name"], "revision": 1}


async def test_a_child_is_told_as_part_of_its_tree(home: Home, work: Path, watcher: Watcher) -> None:
    async with home.sessions.open(plan=DELEGATING.sections(), working_dir=work) as session:
        await session.execute("Ask the helper")
    (child,) = home.sessions.children(session.session_id)

    told = [event for event in await watcher.told() if event["session_id"] == child.session_id]
    assert {event["root_session_id"] for event in told} == {session.session_id}
    assert told[0]["event"] == "session:created"
    assert told[0]["data"]["created_by"] == "agent"
    activities = [event["data"]["activity"] for event in told if event["event"] == "session:status"]
    assert activities == ["idle", "executing", "idle", None]


async def test_a_child_that_goes_while_a_tree_is_read_is_left_out(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=DELEGATING.sections(), working_dir=work) as session:
        await session.execute("Ask the helper")
    (child,) = home.sessions.children(session.session_id)

    (home.paths.sessions / child.session_id).rename(work / "gone")

    assert home.sessions.children(session.session_id) == ()


@pytest.mark.parametrize("how", ["fork", "clone", "import"])
async def test_a_session_that_is_made_of_another_is_told(home: Home, work: Path, tmp_path: Path, how: str) -> None:
    async with home.sessions.open(plan=DELEGATING.sections(), working_dir=work) as session:
        await session.execute("Ask the helper")
    watcher = Watcher(home)

    if how == "fork":
        made = {(await home.sessions.fork(session.session_id)).session_id}
    elif how == "clone":
        clone = await home.sessions.clone(session.session_id)
        made = {clone.session_id, *(child.session_id for child in home.sessions.children(clone.session_id))}
    else:
        await home.sessions.export(session.session_id, tmp_path / "exported")
        made = set((await home.sessions.import_(tmp_path / "exported")).ids.values())

    told = [event for event in await watcher.told() if event["event"] == "session:created"]
    assert {event["session_id"] for event in told} == made
    for session_id in made:
        numbers = [line["seq"] for line in home.sessions.events(session_id)]
        assert numbers == sorted(set(numbers))


async def test_a_session_that_cannot_be_started_is_told_to_be_gone(home: Home, work: Path, watcher: Watcher) -> None:
    broken = Agent().sections() | {"session": {"orchestrator": "loop-missing", "context": "context-simple"}}

    with pytest.raises((RuntimeError, ValueError)):
        await home.sessions.open(plan=broken, working_dir=work)

    assert [name for name, _ in await watcher.lives()] in ([], ["session:created", "session:deleted"])
    assert home.sessions.list().total == 0


async def test_every_kind_of_activity_is_told_and_can_be_read(home: Home, work: Path, watcher: Watcher) -> None:
    plan = Agent([call("wait_here"), "One.", "Two.", call("wait_here"), "Never."]).sections()
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        tool = await WaitingTool().mount(session)
        first = asyncio.create_task(session.execute("First"))
        await tool.is_running.wait()
        second = asyncio.create_task(session.execute("Second", queue=True))
        with reading(home) as queued:
            await queued("execution:queued")
        seen = [session.activity]
        tool.go.set()
        await asyncio.gather(first, second)
        seen.append(session.activity)
        tool.is_running.clear()
        tool.go.clear()
        third = asyncio.create_task(session.execute("Third"))
        await tool.is_running.wait()
        await session.cancel()
        seen.append(session.activity)
        tool.go.set()
        await third

    activities = [data["activity"] for name, data in await watcher.lives() if name == "session:status"]
    assert seen == ["executing", "idle", "cancelling"]
    assert activities == [
        *("idle", "executing", "queued", "executing", "idle"),
        *("executing", "cancelling", "idle", None),
    ]


@contextmanager
def reading(home: Home) -> Iterator[Any]:
    """Give a way to wait for an event of the home."""
    watching = home.sessions.subscribe()

    async def until(name: str) -> Event:
        async for event in watching:
            if event["event"] == name:
                return event
        raise AssertionError(f"{name} was not told")

    try:
        yield until
    finally:
        watching.close()


async def test_a_question_makes_the_session_wait_for_an_approval(home: Home, work: Path, watcher: Watcher) -> None:
    agent = Agent([call("bash", command="true"), "Done."], [{"module": "tool-bash"}])
    agent.hooks = [{"module": "hooks-approval", "config": {"rules": [{"tool": "bash", "action": "ask"}]}}]
    approver = Callback(lambda approval: ApprovalDecision("allow"))
    async with home.sessions.open(plan=agent.sections(), working_dir=work, approver=approver) as session:
        await session.execute("Run it")

    activities = [data["activity"] for name, data in await watcher.lives() if name == "session:status"]
    assert activities == ["idle", "executing", "waiting_approval", "executing", "idle", None]


async def test_the_stream_of_a_turn_still_ends_with_its_end(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent().sections(), working_dir=work) as session:
        names = [event["event"] async for event in session.stream("Hello")]

    assert names[-1] == "execution:done"
