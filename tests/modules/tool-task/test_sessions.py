"""Delegation in real sessions: an application that runs child sessions, with a model that follows a script."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.testing import EventRecorder, wait_for

Entry = dict[str, Any]


def mock(*script: Any, **config: Any) -> list[Entry]:
    """Return the provider of a model that answers from a script."""
    return [{"module": "provider-mock", "config": {"script": list(script), "on_exhausted": "error", **config}}]


def task(agent: str, instruction: str = "Find the bug", **given: Any) -> Entry:
    """Return the tool call that hands a task to an agent."""
    return {"name": "task", "arguments": {"agent": agent, "instruction": instruction, **given}}


def calling(*calls: Entry) -> Entry:
    return {"tool_calls": list(calls)}


TODO = {
    "name": "todo",
    "arguments": {"action": "create", "todos": [{"content": "Look", "activeForm": "Looking", "status": "pending"}]},
}
LAST_RESULT = "{{last_tool_result}}"


class Application:
    """Runs child sessions for `session.spawn` and `session.resume`, as applications do."""

    def __init__(self) -> None:
        self.children: list[AmplifierSession] = []
        self.tools: dict[str, list[str]] = {}
        self.is_running = asyncio.Event()
        self._stored: dict[str, tuple[Entry, list[Any]]] = {}

    def serve(self, session: AmplifierSession) -> None:
        session.coordinator.register_capability("session.spawn", self.spawn)
        session.coordinator.register_capability("session.resume", self.resume)

    async def spawn(
        self,
        *,
        agent_name: str,
        instruction: str,
        parent_session: AmplifierSession,
        agent_configs: dict[str, Entry],
        sub_session_id: str,
        tool_inheritance: dict[str, list[str]],
        **_: Any,
    ) -> Entry:
        agent = agent_configs[agent_name]
        plan = {
            **parent_session.config,
            "providers": agent["providers"],
            "tools": [*inherited(parent_session.config["tools"], tool_inheritance), *agent.get("tools", ())],
        }
        child = AmplifierSession(plan, session_id=sub_session_id, parent_id=parent_session.session_id)
        return await self._run(child, instruction, parent=parent_session)

    async def resume(self, sub_session_id: str, instruction: str) -> Entry:
        if sub_session_id not in self._stored:
            raise FileNotFoundError(sub_session_id)
        plan, messages = self._stored[sub_session_id]
        child = AmplifierSession(plan, session_id=sub_session_id, is_resumed=True)
        return await self._run(child, instruction, messages=messages)

    async def _run(
        self, child: AmplifierSession, instruction: str, *, parent: AmplifierSession | None = None, messages: Any = ()
    ) -> Entry:
        self.children.append(child)
        tokens = [parent.coordinator.cancellation] if parent is not None else []
        async with child:
            self.serve(child)
            self.tools[child.session_id] = sorted(child.coordinator.get("tools"))
            for token in tokens:
                token.register_child(child.coordinator.cancellation)
            await child.coordinator.get("context").set_messages(list(messages))
            self.is_running.set()
            try:
                output = await child.execute(instruction)
            finally:
                for token in tokens:
                    token.unregister_child(child.coordinator.cancellation)
            self._stored[child.session_id] = (child.config, await child.coordinator.get("context").get_messages())
        return {"output": output, "session_id": child.session_id, "status": child.status.status, "turn_count": 1}


def inherited(tools: list[Entry], policy: dict[str, list[str]]) -> list[Entry]:
    if "inherit_tools" in policy:
        return [tool for tool in tools if tool["module"] in policy["inherit_tools"]]
    return [tool for tool in tools if tool["module"] not in policy.get("exclude_tools", ())]


class World:
    """A session whose model delegates, and the application around it."""

    def __init__(self, session: AmplifierSession, application: Application) -> None:
        self.session, self.application = session, application
        self.recorder = EventRecorder()
        for event in ("task:agent_spawned", "task:agent_cancelled", "task:agent_completed"):
            session.coordinator.hooks.register(event, self.recorder.record, name="recorder")

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.recorder.events]

    @property
    def child(self) -> AmplifierSession:
        (child,) = self.application.children
        return child

    async def results(self) -> list[Any]:
        """Return what the model was told by the tool, JSON where it is some."""
        messages = await self.session.coordinator.get("context").get_messages()
        texts = [message["content"] for message in messages if message["role"] == "tool"]
        return [json.loads(text) if text.startswith("{") else text for text in texts]


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    sessions: list[AmplifierSession] = []

    async def start(script: list[Any], agents: Entry, session_id: str = "root", **config: Any) -> World:
        plan = {
            "session": {"orchestrator": "loop-basic", "context": "context-simple"},
            "providers": mock(*script),
            "tools": [{"module": "tool-task", "config": config}, {"module": "tool-todo"}],
            "agents": agents,
        }
        session = AmplifierSession(plan, session_id=session_id)
        sessions.append(session)
        await session.initialize()
        assert session.status.load_failures == []
        world = World(session, Application())
        world.application.serve(session)
        return world

    yield start
    for session in sessions:
        await session.cleanup()


async def test_a_child_session_of_an_agent_in_the_plan_works_and_its_answer_comes_back(start: Any) -> None:
    hunter = {"description": "Hunts bugs.", "providers": mock("It is in line 3, as for: {{last_user}}")}
    script = [calling(task("Bug Hunter")), f"The agent says: {LAST_RESULT}"]
    world = await start(script, {"Bug Hunter": hunter})

    answer = await world.session.execute("Why does it crash?")

    (result,) = await world.results()
    assert result == {
        "response": "It is in line 3, as for: Find the bug",
        "session_id": world.child.session_id,
        "agent": "Bug Hunter",
        "status": "completed",
        "turn_count": 1,
    }
    assert "It is in line 3" in answer
    assert re.fullmatch(r"root-[0-9a-f]{16}_bug-hunter", world.child.session_id)
    assert world.child.parent_id == "root"
    assert world.events == ["task:agent_spawned", "task:agent_completed"]


async def test_the_model_is_shown_the_agents(start: Any) -> None:
    world = await start(["done"], {"hunter": {"description": "Hunts bugs.", "providers": mock()}})

    assert "  - hunter: Hunts bugs." in world.session.coordinator.get("tools")["task"].description


@pytest.mark.parametrize(
    ("config", "tools"),
    [
        ({}, ["glob", "grep", "task", "todo"]),
        ({"exclude_tools": ["tool-todo"]}, ["glob", "grep", "task"]),
        ({"inherit_tools": ["tool-todo"]}, ["glob", "grep", "todo"]),
        ({"inherit_tools": []}, ["glob", "grep"]),
    ],
    ids=str,
)
async def test_a_child_inherits_the_tools_it_may_and_keeps_its_own(start: Any, config: Any, tools: list[str]) -> None:
    agent = {"tools": [{"module": "tool-search"}], "providers": mock(calling(TODO), LAST_RESULT)}
    world = await start([calling(task("a")), "done"], {"a": agent}, **config)

    await world.session.execute("go")

    (result,) = await world.results()
    assert world.application.tools == {world.child.session_id: tools}
    assert ("not found" in result["response"]) is ("todo" not in tools)


async def test_a_child_cannot_delegate_at_the_default_depth(start: Any) -> None:
    agents = {"a": {"providers": mock(calling(task("b")), LAST_RESULT)}, "b": {"providers": mock("never")}}
    world = await start([calling(task("a")), "done"], agents)

    await world.session.execute("go")

    (result,) = await world.results()
    assert result["response"].startswith("Maximum recursion depth exceeded")
    assert len(world.application.children) == 1


async def test_with_more_depth_a_childs_child_works_and_its_own_is_refused(start: Any) -> None:
    agents = {
        "a": {"providers": mock(calling(task("b")), f"a: {LAST_RESULT}")},
        "b": {"providers": mock(calling(task("a")), f"b: {LAST_RESULT}")},
    }
    world = await start([calling(task("a")), "done"], agents, max_recursion_depth=2)

    await world.session.execute("go")

    (result,) = await world.results()
    child, grandchild = world.application.children
    assert "b: Maximum recursion depth exceeded" in result["response"]
    assert grandchild.session_id.startswith(f"{child.session_id}-")
    assert (child.parent_id, grandchild.parent_id) == ("root", child.session_id)


async def test_a_delegation_can_be_taken_up_again(start: Any) -> None:
    agent = {"providers": [{"module": "provider-mock", "config": {"mode": "echo", "echo_prefix": "heard: "}}]}
    world = await start([calling(task("a", "one")), "done"], {"a": agent})
    await world.session.execute("go")
    tool = world.session.coordinator.get("tools")["task"]

    result = await tool.execute({"session_id": world.child.session_id, "instruction": "two"})
    unknown = await tool.execute({"session_id": "nobody", "instruction": "two"})

    resumed = world.application.children[-1]
    messages = await resumed.coordinator.get("context").get_messages()
    assert result.output["response"] == "heard: two"
    assert [message["content"] for message in messages if message["role"] == "user"] == ["one", "two"]
    assert unknown.error["code"] == "not_found"


async def test_a_child_is_told_what_was_said_when_it_is_asked_for(start: Any) -> None:
    agent = {"providers": [{"module": "provider-mock", "config": {"mode": "echo"}}]}
    world = await start([calling(task("a", inherit_context="recent")), "done"], {"a": agent})

    await world.session.execute("Why does it crash?")

    (result,) = await world.results()
    assert "USER: Why does it crash?" in result["response"]
    assert result["response"].endswith("[YOUR TASK]\nFind the bug")


async def test_children_of_one_response_work_side_by_side(start: Any) -> None:
    agents = {name: {"providers": mock(f"from {name}")} for name in "abcde"}
    world = await start([calling(*(task(name) for name in agents)), "done"], agents)

    await world.session.execute("go")

    assert [result["response"] for result in await world.results()] == [f"from {name}" for name in agents]
    assert world.events[:5] == ["task:agent_spawned"] * 5


async def test_a_child_that_fails_is_an_answer_for_the_model_not_the_end_of_the_turn(start: Any) -> None:
    agent = {"providers": mock({"error": {"type": "auth", "message": "no key"}})}
    world = await start([calling(task("a")), "sorry"], {"a": agent})

    assert await world.session.execute("go") == "sorry"

    assert await world.results() == ["Delegation failed: no key"]
    assert world.child.status.status == "failed"


async def test_a_child_is_cancelled_with_the_turn_of_its_parent(start: Any) -> None:
    world = await start([calling(task("a")), "never"], {"a": {"providers": mock("never", latency_ms=60_000)}})
    turn = asyncio.create_task(world.session.execute("go"))
    await world.application.is_running.wait()

    turn.cancel()
    await asyncio.wait([turn])

    assert turn.cancelled()
    assert not world.child.initialized
    assert world.child.status.status != "completed"
    assert world.events == ["task:agent_spawned", "task:agent_cancelled", "task:agent_completed"]
    ((_, data),) = world.recorder.get_events("task:agent_completed")
    assert data["success"] is False


async def test_a_wish_to_stop_reaches_the_child_through_its_parents_token(start: Any) -> None:
    agent = {"providers": mock(calling(TODO), "never")}
    world = await start([calling(task("a")), "never"], {"a": agent})

    async def stop(event: str, data: Any) -> None:
        await world.session.coordinator.request_cancel()

    world.session.coordinator.hooks.register("task:agent_spawned", stop, name="stop")
    await world.session.execute("go")

    assert (world.child.status.status, world.session.status.status) == ("cancelled", "cancelled")


async def test_a_child_that_takes_too_long_is_ended_and_the_turn_goes_on(start: Any) -> None:
    agent = {"providers": mock("never", latency_ms=60_000)}
    world = await start([calling(task("a")), "too slow"], {"a": agent}, timeout=0.2)

    assert await world.session.execute("go") == "too slow"

    (result,) = await world.results()
    assert "timed out after 0.2 seconds" in result
    assert await wait_for(lambda: not world.child.initialized)


async def test_two_sessions_delegate_apart(start: Any) -> None:
    worlds = [
        await start([calling(task("a")), "done"], {"a": {"providers": mock(f"for {name}")}}, session_id=name)
        for name in ("one", "two")
    ]

    await asyncio.gather(*(world.session.execute("go") for world in worlds))

    responses = [(await world.results())[0]["response"] for world in worlds]
    assert responses == ["for one", "for two"]
    assert [world.child.parent_id for world in worlds] == ["one", "two"]
