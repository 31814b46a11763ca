"""Going on with another profile: as a whole or not at all, and never in the middle of a turn."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents_at_work import Agent, call
from waiting_tool import WaitingTool

from amplifierd.exceptions import ProviderNotInPlanError, SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.session import Session

BROKEN = """
__amplifier_module_type__ = "orchestrator"

async def mount(coordinator, config=None):
    raise RuntimeError("out of order")
"""


@pytest.fixture
def broken(home: Home, tmp_path: Path) -> str:
    """Return a profile that compiles, and whose orchestrator cannot be mounted."""
    package = tmp_path / "loop-broken" / "amplifier_module_loop_broken"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BROKEN)
    sections = Agent(["Never."]).sections()
    sections["session"]["orchestrator"] = {"module": "loop-broken", "source": str(package.parent)}
    head = {"profile": {"name": "broken", "version": "1.0.0", "description": "Broken", "schema_version": 2}}
    file = home.paths.own_profiles / "broken.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in sections.items() if value}
    file.write_text(f"---\n{yaml.safe_dump(json.loads(json.dumps({**head, **kept})))}---\n\nBe broken.\n")
    return "local/broken"


def stored(home: Home, session_id: str) -> dict[str, Any]:
    """Return what a switch would change, as it is on disk."""
    directory = home.paths.sessions / session_id
    names = ("mount_plan.json", "context_messages.json")
    files = {name: (directory / name).read_bytes() for name in names if (directory / name).exists()}
    record = home.sessions.get(session_id)
    facts = (record.profile_name, record.bundle, record.build_id, record.stale, record.load_warnings)
    return {**files, "record": facts, "archived": sorted(directory.glob("mount_plan.*.json"))}


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_switch_whose_modules_cannot_be_loaded_changes_nothing(
    home: Home, work: Path, broken: str, is_open: bool
) -> None:
    session = await home.sessions.open(plan=Agent(["One.", "Two."]).sections(), working_dir=work)
    await session.execute("First")
    if not is_open:
        await session.close()
    before = stored(home, session.session_id)

    with pytest.raises(RuntimeError, match="out of order"):
        await home.sessions.change_profile(session.session_id, broken)

    assert stored(home, session.session_id) == before
    assert "session:profile_changed" not in [event["event"] for event in home.sessions.events(session.session_id)]
    if is_open:
        assert (await session.execute("Second")).response == "Two."  # the very modules that were there before
        await session.close()
    async with home.sessions.resume(session.session_id) as again:
        assert (await again.execute("Third")).response == "One."


async def waiting(home: Home, work: Path) -> tuple[Session, WaitingTool, "asyncio.Task[Any]"]:
    """Return a session in the middle of a turn."""
    session = await home.sessions.open(plan=Agent([call("wait_here"), "Old."]).sections(), working_dir=work)
    tool = await WaitingTool().mount(session)
    turn = asyncio.create_task(session.execute("Wait"))
    await tool.is_running.wait()
    return session, tool, turn


async def test_a_switch_waits_for_the_running_turn(home: Home, work: Path, tmp_path: Path) -> None:
    Agent(["New."]).source(home, "profile", tmp_path)
    await home.profiles.compile("local/worker")
    session, tool, turn = await waiting(home, work)

    switch = asyncio.create_task(home.sessions.change_profile(session.session_id, "local/worker"))
    while not session.runner.queue.waiting:  # noqa: ASYNC110 - that a switch waits is not told
        await asyncio.sleep(0)
    after = asyncio.create_task(session.execute("And now?", queue=True))
    async for event in session.subscribe():
        if event["event"] == "execution:queued":
            break
    assert session.queued() == ["And now?"]
    assert home.sessions.get(session.session_id).profile_name is None
    tool.go.set()
    results = await asyncio.gather(turn, after)

    assert (await switch).profile_name == "local/worker"
    assert [result.response for result in results] == ["Old.", "New."]
    await session.close()


async def test_a_switch_can_cancel_the_running_turn(home: Home, work: Path, tmp_path: Path) -> None:
    Agent(["New."]).source(home, "profile", tmp_path)
    session, tool, turn = await waiting(home, work)

    record = await home.sessions.change_profile(session.session_id, "local/worker", cancel=True)

    assert (await turn).status == "cancelled"
    assert tool.was_cancelled
    assert record.profile_name == "local/worker"
    assert (await session.execute("And now?")).response == "New."
    assert [message["content"] for message in await session.messages() if message["role"] == "user"] == [
        "Wait",
        "And now?",
    ]
    await session.close()


@pytest.mark.parametrize("is_open", [True, False])
async def test_another_model_is_asked_with_the_same_modules_and_history(
    home: Home, work: Path, tmp_path: Path, is_open: bool
) -> None:
    session = await home.sessions.open(**Agent(["One."]).source(home, "profile", tmp_path), working_dir=work)
    await session.execute("First")
    if not is_open:
        await session.close()
    before = home.sessions.get(session.session_id)

    record = await home.sessions.change_agent(session.session_id, model="other", effort="high")

    assert (record.profile_name, record.build_id) == (before.profile_name, before.build_id)
    await home.sessions.change_agent(session.session_id, max_iterations=3)
    changed = home.sessions.get(session.session_id).settings_overrides
    assert changed["providers"] == [{"module": "provider-mock", "config": {"default_model": "other"}}]
    loop = changed["session"]["orchestrator"]["config"]
    assert loop == {"default_provider": "mock", "reasoning_effort": "high", "max_iterations": 3}
    async with home.sessions.resume(session.session_id) as again:
        result = await again.execute("Second")
        assert (result.turn, again.record.model) == (2, "other")
    if is_open:
        await session.close()


async def test_a_provider_that_the_plan_does_not_have_cannot_be_asked(home: Home, work: Path) -> None:
    record = await home.sessions.create(plan=Agent().sections(), working_dir=work)

    with pytest.raises(ProviderNotInPlanError, match="nowhere") as refused:
        await home.sessions.change_agent(record.session_id, provider="nowhere")

    assert "provider-mock" in refused.value.hint
    await home.sessions.end(record.session_id)
    with pytest.raises(SessionStateError):
        await home.sessions.change_agent(record.session_id, model="late")
