"""Sessions of several builds at once: each runs the code that it was built with."""

import json
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import call
from worker_bench import PROMPT, WorkerBench, faulty, until

from amplifierd.workers.live_sessions import TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULE = """
class Tool:
    name = "version"
    description = "Says which code it is."

    def get_schema(self):
        return {"type": "object", "properties": {"of": {"type": "string"}}}

    async def execute(self, input):
        return {"version": "VERSION"}


async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool(), name="version")
"""
PROJECT = '[project]\nname = "amplifier-module-tool-version"\nversion = "1"\ndependencies = []\n'


def write_profile(bench: WorkerBench, version: str, *, name: str = "worker") -> str:
    """Write a profile whose tool says a version."""
    folder = bench.home.paths.home.parent / f"modules-{name}/tool-version"
    package = folder / "amplifier_module_tool_version"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(MODULE.replace("VERSION", version))
    (folder / "pyproject.toml").write_text(PROJECT)
    provider = {"script": [call("version"), "Done."], "on_exhausted": "rotate", "tool_trigger": None}
    front: dict[str, Any] = {
        "profile": {"name": name, "version": "1.0.0", "schema_version": 2},
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": provider}],
        "tools": [{"module": "tool-version", "source": str(folder)}],
    }
    file = bench.home.paths.own_profiles / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\n{json.dumps(front)}\n---\nYou are a test agent.\n")
    return f"local/{name}"


async def create(bench: WorkerBench, profile: str) -> tuple[str, Path]:
    folder = bench.folder()
    await bench.home.profiles.compile(profile)
    return (await bench.home.sessions.create(profile, working_dir=folder)).session_id, folder


def said(bench: WorkerBench, session_id: str) -> list[str]:
    """Return the versions that the tool said."""
    tools = [one["content"] for one in bench.home.sessions.messages(session_id) if one["role"] == "tool"]
    return [version for one in tools for version in ("first", "second", "other") if version in str(one)]


async def test_each_build_has_a_worker_and_a_switch_moves_a_session_into_the_other(bench: WorkerBench) -> None:
    old, _ = await create(bench, write_profile(bench, "first"))
    await bench.run(old)
    new, _ = await create(bench, write_profile(bench, "second"))
    other, _ = await create(bench, write_profile(bench, "other", name="other"))

    for session_id in (old, new, other):
        assert (await bench.run(session_id))["status"] == "completed"

    assert said(bench, old) == ["first", "first"]
    assert said(bench, new) == ["second"]
    assert said(bench, other) == ["other"]
    assert len({bench.worker_of(one) for one in (old, new, other)}) == 3

    record = await bench.live.acts.change_profile(old, profile="local/worker")
    assert record.build_id == bench.home.sessions.get(new).build_id
    assert "session:profile_changed" in bench.told(old)
    await bench.run(old)
    assert said(bench, old) == ["first", "first", "second"]
    assert bench.worker_of(old) == bench.worker_of(new)


async def test_a_tool_that_offers_its_schema_only_by_a_method_shows_it(bench: WorkerBench) -> None:
    session_id, _ = await create(bench, write_profile(bench, "first"))

    (tool,) = await bench.live.inspect(session_id, "tools")

    assert (tool["name"], tool["input_schema"]["properties"]) == ("version", {"of": {"type": "string"}})


async def test_a_switch_waits_for_the_turn_or_cancels_it(bench: WorkerBench) -> None:
    profile = write_profile(bench, "other", name="other")
    await bench.home.profiles.compile(profile)
    waiting, folder = await bench.session(faulty("wait"))
    first = await bench.live.submit(waiting, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    async with bench.meanwhile(bench.live.acts.change_profile(waiting, profile=profile)) as switching:
        (folder / "go").touch()
        assert (await bench.result(first))["status"] == "completed"
    assert switching.result().profile_name == profile
    await bench.run(waiting)
    assert said(bench, waiting) == ["other"]

    cancelled, folder = await bench.session(faulty("wait"))
    second = await bench.live.submit(cancelled, TurnRequest(PROMPT))
    await until((folder / "begun").exists)
    await bench.live.acts.change_profile(cancelled, profile=profile, cancel=True)
    assert (await bench.result(second))["status"] == "cancelled"
