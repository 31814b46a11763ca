"""Sessions with orchestrators and hooks of others, which do some things their own way."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call

import amplifierd
from amplifier_core import HookResult
from amplifier_foundation.session import find_orphaned_tool_calls
from amplifierd.home import Home
from amplifierd.sessions.layers.stoppable_calls import Patience
from amplifierd.store.cursor import Cursor

LOOP = """
from amplifier_core import ChatRequest, Message

__amplifier_module_type__ = "orchestrator"


class Loop:
    def __init__(self, config):
        self.before, self.breaks = config.get("before"), config.get("breaks")

    async def execute(self, prompt, context, providers, tools, hooks, **extra):
        if self.before:
            await context.add_message({"role": "user", "content": self.before})
        await context.add_message({"role": "user", "content": f"It is noon. {prompt}"})
        if self.breaks:
            call = {"id": "call_1", "tool": "read_file", "arguments": {"file_path": "notes.md"}}
            await context.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
            raise RuntimeError("out of order")
        (provider,) = providers.values()
        history = [Message(role=m["role"], content=m["content"] or "") for m in await context.get_messages()]
        reply = await provider.complete(ChatRequest(messages=history))
        text = "".join(block.text for block in reply.content)
        await context.add_message({"role": "assistant", "content": text})
        return text


async def mount(coordinator, config=None):
    await coordinator.mount("orchestrator", Loop(config or {}))
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    package = tmp_path / "modules" / "loop-foreign" / "amplifier_module_loop_foreign"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LOOP)
    return tmp_path / "modules"


@pytest.fixture
def open_to_modules(tmp_path: Path, modules: Path) -> Home:
    overrides = {"security": {"module_roots": [str(modules)]}}
    return amplifierd.open_home(tmp_path / "home", offline=True, overrides=overrides)


def plan(modules: Path, **loop: Any) -> dict[str, Any]:
    sections = Agent(["One.", "Two.", "Three."]).sections()
    orchestrator = {"module": "loop-foreign", "source": str(modules / "loop-foreign"), "config": loop}
    return {**sections, "session": {**sections["session"], "orchestrator": orchestrator}}


async def test_a_prompt_is_in_the_transcript_once_whatever_a_loop_adds_to_it(
    open_to_modules: Home, modules: Path, work: Path
) -> None:
    home = open_to_modules
    async with home.sessions.open(plan=plan(modules, before="Be brief."), working_dir=work) as session:
        await session.execute("Hello")

    said = [(message["role"], message["content"]) for message in home.sessions.messages(session.session_id)]
    assert said == [("user", "Hello"), ("user", "Be brief."), ("assistant", "One.")]


async def test_a_call_that_a_broken_loop_left_open_has_a_result_before_the_next_turn(
    open_to_modules: Home, modules: Path, work: Path
) -> None:
    home = open_to_modules
    async with home.sessions.open(plan=plan(modules, breaks=True), working_dir=work) as session:
        result = await session.execute("Hello")
        context = session.runner.kernel.session.coordinator.get("context")
        told = await context.get_messages()

    assert result.status == "failed"
    assert find_orphaned_tool_calls(told) == []
    assert [message["role"] for message in home.sessions.messages(session.session_id)] == ["user", "assistant", "tool"]
    async with home.sessions.resume(session.session_id) as resumed:
        assert not resumed.repaired


async def test_a_prompt_that_a_hook_changed_is_in_the_transcript_once(home: Home, work: Path) -> None:
    async def polite(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={**data, "prompt": "Please."})

    async with home.sessions.open(plan=Agent(["Yes."]).sections(), working_dir=work) as session:
        session.runner.kernel.session.coordinator.hooks.register("prompt:submit", polite, name="polite")
        await session.execute("Now!")

    assert [m["content"] for m in home.sessions.messages(session.session_id) if m["role"] == "user"] == ["Now!"]


async def test_dropping_a_result_drops_its_call(home: Home, work: Path) -> None:
    agent = Agent([call("read_file", file_path="notes.md"), "Milk.", "Hello."])
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        await session.execute("Read")
        for _ in range(2):
            await home.sessions.delete_last_message(session.session_id)
        told = await session.runner.kernel.session.coordinator.get("context").get_messages()

    assert [message["role"] for message in home.sessions.messages(session.session_id)] == ["user"]
    assert find_orphaned_tool_calls(told) == []


async def test_slow_hooks_hold_a_turn_up_and_change_no_order(home: Home, work: Path) -> None:
    heard = []

    async def slow(event: str, data: dict[str, Any]) -> HookResult:
        await asyncio.sleep(0.02)
        heard.append(event)
        return HookResult()

    agent = Agent([call("read_file", file_path="notes.md"), "Read."])
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        hooks = session.runner.kernel.session.coordinator.hooks
        for event in ("prompt:submit", "provider:response", "tool:pre", "tool:post", "execution:end"):
            hooks.register(event, slow, name="slow")
        told = [event async for event in session.stream("Read")]

    stored = home.sessions.events(session.session_id)
    places = [Cursor.of_event(event) for event in told]
    assert places == sorted(place for place in places if place is not None)
    assert [event["seq"] for event in stored] == sorted(event["seq"] for event in stored)
    names = [event["event"] for event in told]
    steps = ["tool:pre", "tool:intent", "tool:outcome", "tool:post"]
    assert [name for name in names if name in steps] == steps
    assert heard[0] == "prompt:submit"
    assert "tool:pre" in heard
    assert names[-1] == "execution:done"


async def test_a_hook_that_never_ends_does_not_keep_a_turn_from_being_cancelled(home: Home, work: Path) -> None:
    is_asked = asyncio.Event()

    async def endless(event: str, data: dict[str, Any]) -> HookResult:
        is_asked.set()
        await asyncio.Event().wait()
        return HookResult()

    home.sessions.runtime = replace(home.sessions.runtime, patience=Patience(module_s=0.1))
    agent = Agent([call("read_file", file_path="notes.md"), "Again."])
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        unregister = session.runner.kernel.session.coordinator.hooks.register("tool:pre", endless, name="endless")
        turn = asyncio.create_task(session.execute("Read"))
        await is_asked.wait()
        await session.cancel(immediate=True)
        first = await turn
        unregister()
        second = await session.execute("And now?")
        messages = await session.messages()

    assert (first.status, second.status) == ("cancelled", "completed")
    assert find_orphaned_tool_calls(messages) == []


async def test_a_stream_of_an_orchestrator_passes_through_the_layers_as_well(home: Home, work: Path) -> None:
    agent = Agent(["One.", "Two."], orchestrator="loop-streaming")
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        coordinator = session.runner.kernel.session.coordinator
        orchestrator = coordinator.get("orchestrator")
        parts = [coordinator.get(name) for name in ("context", "providers", "tools")]
        text = "".join([piece async for piece in orchestrator.execute_stream("Hello", *parts, coordinator.hooks)])

    stored = [event["event"] for event in home.sessions.events(session.session_id)]
    assert text.strip() == "One."
    assert [name for name in stored if name in ("request:stored", "response:stored")] == [
        "request:stored",
        "response:stored",
    ]
