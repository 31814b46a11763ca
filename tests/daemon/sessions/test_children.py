"""Agents that a session delegates to: sessions of their own in the same tree."""

from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, Kind, call

from amplifierd.home import Home
from amplifierd.sessions.questions.approval import Approval, ApprovalDecision, Callback
from amplifierd.sessions.session import Session
from amplifierd.store.cursor import Cursor

HELPER = {
    "description": "Reads for you",
    "instruction": "You read files.",
    "providers": [
        {
            "module": "provider-mock",
            "config": {"script": [call("read_file", file_path="notes.md"), "It says milk.", "Still milk."]},
        }
    ],
}
SCRIPT = [call("task", agent="helper", instruction="Read the notes"), "The helper says: {{last_tool_result}}"]


def delegating(script: list[Any] = SCRIPT, **options: Any) -> Agent:
    tools = [{"module": "tool-filesystem"}, {"module": "tool-task"}]
    return Agent(script, tools=tools, agents={"helper": HELPER}, **options)


def child_of(home: Home, session: Session) -> str:
    (child,) = home.sessions.children(session.session_id)
    return child.session_id


async def test_a_child_is_a_session_in_the_tree_of_its_parent(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    async with home.sessions.open(**delegating().source(home, kind, tmp_path), working_dir=work) as session:
        events = [event async for event in session.stream("Ask the helper")]

    parent = home.sessions.get(session.session_id)
    child = home.sessions.get(child_of(home, session))
    assert (child.parent_session_id, child.root_session_id) == (parent.session_id, parent.session_id)
    assert (child.created_by, child.agent_name, child.turn_count) == ("agent", "helper", 1)
    assert [message["role"] for message in home.sessions.messages(child.session_id)][:2] == ["user", "assistant"]
    assert "It says milk." in str(home.sessions.messages(session.session_id)[-1]["content"])
    assert parent.agent_invocations == 1
    assert parent.usage_tree is not None
    assert child.usage is not None
    assert parent.usage_tree["by_agent"]["helper"]["tokens"] == child.usage["tokens"]
    own = [event for event in events if event["session_id"] == child.session_id]
    assert {event["correlation_id"] for event in own} == {f"prompt_{parent.session_id}_1"}
    assert {event["nesting_depth"] for event in own} == {1}
    (call_id,) = {
        event["data"]["tool_call_id"] for event in events if event["event"] == "tool:pre" and event not in own
    }
    assert {event["parent_tool_call_id"] for event in own} == {call_id}
    places = [Cursor.of_event(event) for event in events]
    assert places == sorted({place for place in places if place is not None})


async def test_a_child_can_be_resumed_by_itself_and_through_its_parent(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    async with home.sessions.open(**delegating().source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("Ask the helper")
        child = child_of(home, session)
        resume = session.runner.kernel.session.coordinator.get_capability("session.resume")
        again = await resume(child, "And now?")

    async with home.sessions.resume(child) as alone:
        third = await alone.execute("Once more")

    assert (again["session_id"], again["turn_count"], again["status"]) == (child, 2, "success")
    assert (third.turn, third.status) == (3, "completed")


class Roles:
    """Serves the role fast."""

    async def resolve(self, role: str) -> list[dict[str, str]]:
        return [{"provider": "mock", "model": f"{role}-model"}] if role == "fast" else []


async def test_a_child_keeps_its_model_until_a_call_prefers_another(home: Home, work: Path, tmp_path: Path) -> None:
    async with home.sessions.open(**delegating().source(home, "plan", tmp_path), working_dir=work) as session:
        await session.load()
        coordinator = session.runner.kernel.session.coordinator
        coordinator.register_capability("model_role_resolver", Roles())
        spawn, resume = (coordinator.get_capability(f"session.{name}") for name in ("spawn", "resume"))
        agents = {"roled": {**HELPER, "model_role": ["slow", "fast"]}}
        child = (await spawn("roled", "go", agent_configs=agents, self_delegation_depth=1))["session_id"]
        models = [model_of(home, child)]
        for options in ({}, {"provider_preferences": [{"provider": "mock", "model": "other"}]}, {}):
            await resume(child, "again", **options)
            models.append(model_of(home, child))
        await resume(child, "again", model_role="fast")
        models.append(model_of(home, child))

    assert models == ["fast-model", "fast-model", "other", "other", "fast-model"]
    assert home.sessions.get(child).turn_count == 5


def model_of(home: Home, session_id: str) -> Any:
    plan = home.sessions.plan(session_id)
    return plan["providers"][0]["config"]["default_model"]


async def test_agents_of_an_overlay_work_and_leave_the_stored_plan_as_it_is(
    home: Home, work: Path, tmp_path: Path
) -> None:
    async with home.sessions.open(**delegating().source(home, "plan", tmp_path), working_dir=work) as session:
        await session.load()
        coordinator = session.runner.kernel.session.coordinator
        overlay = coordinator.get_capability("session.runtime_overlay")(success_event="a:b", failure_event="a:c")
        await overlay.apply("mode:audit", {"agents": {"auditor": HELPER}})
        answer = await coordinator.get_capability("session.spawn")(
            "auditor", "go", session_metadata={"skill_name": "x"}
        )

    plan, child = home.sessions.plan(session.session_id), home.sessions.plan(answer["session_id"])
    assert (sorted(plan["agents"]), sorted(child["agents"])) == (["helper"], ["auditor", "helper"])
    assert child["session"]["metadata"] == {"skill_name": "x"}


async def test_what_a_child_said_so_far_is_known_after_its_turn_was_cut(home: Home, work: Path, tmp_path: Path) -> None:
    slow = {**HELPER, "providers": [{"module": "provider-mock", "config": {"script": PARTLY}}]}
    tools = [{"module": "tool-bash"}, {"module": "tool-delegate", "config": {"settings": {"timeout": 1}}}]
    script = [call("delegate", agent="helper", instruction="Read", context_depth="none"), "{{last_tool_result}}"]
    agent = Agent(script, tools=tools, agents={"helper": slow})
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        result = await session.execute("Ask the helper")
        partial = session.runner.kernel.session.coordinator.get_capability("session.partial")
        found = await partial(child_of(home, session))
        unknown = await partial("nobody")

    assert '"partial_response": "First I look."' in result.response
    assert (found, unknown) == ({"text": "First I look.", "segments": 1, "source": "transcript"}, None)


PARTLY = [
    {"text": "First I look.", "tool_calls": [{"name": "bash", "arguments": {"command": "sleep 30"}}]},
    "Never said.",
]


async def test_modules_keep_the_name_and_the_mode_of_a_session(home: Home, work: Path, tmp_path: Path) -> None:
    async with home.sessions.open(**delegating().source(home, "plan", tmp_path), working_dir=work) as session:
        await session.load()
        record = session.runner.kernel.session.coordinator.get_capability("session.record")
        assert record.is_root
        assert await record.set({"name": None}, name="Milk", active_mode="plan")
        assert not await record.set({"name": None}, name="Something else")
        with pytest.raises(KeyError, match="owner"):
            await record.set(owner="me")
        name = record.get("name")

    stored = home.sessions.get(session.session_id)
    assert (name, stored.name, stored.fields()["active_mode"]) == ("Milk", "Milk", "plan")


LOOP = """
class Loop:
    def __init__(self, config):
        self.config = config

    async def execute(self, prompt, context, providers, tools, hooks, coordinator=None, **more):
        if not coordinator.parent_id:
            spawn = coordinator.get_capability("session.spawn")
            return (await spawn(agent_name="helper", instruction="go", **self.config["call"]))["output"]
        return str(sorted(self.config.items()))


async def mount(coordinator, config=None):
    await coordinator.mount("orchestrator", Loop(config or {}))
"""


@pytest.mark.parametrize("form", ["portable", "resolved"])
@pytest.mark.parametrize("given", [{}, {"orchestrator_config": {"steps": 9}}])
async def test_a_child_has_its_parents_orchestrator_however_the_parents_plan_is_written(
    home: Home, work: Path, tmp_path: Path, form: Any, given: dict[str, Any]
) -> None:
    package = tmp_path / "loop-own" / "amplifier_module_loop_own"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LOOP)
    config = {"steps": 3, "call": given}
    orchestrator = {"module": "loop-own", "source": str(package.parent), "config": config}
    agent = Agent(orchestrator=orchestrator, agents={"helper": {"description": "Helps", "instruction": "Help."}})
    profile = agent.source(home, "profile", tmp_path)["profile"]

    plan = await home.plans.generate(profile, form=form)
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        result = await session.execute("Ask the helper")

    expected = {**config, **given.get("orchestrator_config", {})}
    assert (result.status, result.response) == ("completed", str(sorted(expected.items())))


async def test_an_unknown_agent_is_named_with_those_that_exist(home: Home, work: Path, tmp_path: Path) -> None:
    source = delegating(["Hm."]).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work) as session:
        spawn = session.runner.kernel.session.coordinator.get_capability("session.spawn")
        with pytest.raises(ValueError, match=r"Agent 'nobody' not found. Available: helper"):
            await spawn(agent_name="nobody", instruction="x")


async def test_agents_are_not_nested_without_end(home: Home, work: Path, tmp_path: Path) -> None:
    deeper = {**HELPER, "providers": [{"module": "provider-mock", "config": {"script": SCRIPT}}]}
    tools = [{"module": "tool-task", "config": {"max_recursion_depth": -1}}]
    agent = Agent(SCRIPT, tools=tools, agents={"helper": deeper})
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        result = await session.execute("Ask the helper")

    assert result.status == "completed"
    assert len(home.sessions.children(session.session_id)) == 5


async def test_deleting_a_session_deletes_its_children(home: Home, work: Path, tmp_path: Path) -> None:
    async with home.sessions.open(**delegating().source(home, "plan", tmp_path), working_dir=work) as session:
        await session.execute("Ask the helper")

    await home.sessions.delete(session.session_id)

    assert home.sessions.list().total == 0


async def test_a_clone_has_copies_of_the_children(home: Home, work: Path, tmp_path: Path) -> None:
    async with home.sessions.open(**delegating().source(home, "plan", tmp_path), working_dir=work) as session:
        await session.execute("Ask the helper")

    clone = await home.sessions.clone(session.session_id)

    (copied,) = home.sessions.children(clone.session_id)
    assert copied.session_id != child_of(home, session)
    assert copied.parent_session_id == clone.session_id
    assert {event["session_id"] for event in home.sessions.events(copied.session_id)} == {copied.session_id}
    async with home.sessions.resume(clone.session_id) as resumed:
        assert (await resumed.execute("Again")).status == "completed"


async def test_what_a_turn_used_includes_the_agents_that_worked_for_it(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=delegating().sections(), working_dir=work) as session:
        result = await session.execute("Ask the helper")
        child, own = home.sessions.get(child_of(home, session)).usage, session.record.usage

    assert child is not None
    assert own is not None
    assert result.usage["tokens"]["total"] == own["tokens"]["total"] + child["tokens"]["total"]
    assert (result.usage["tool_calls"], result.usage["turns"]) == (2, 2)
    assert result.usage["by_agent"]["helper"]["tokens"] == child["tokens"]


async def test_a_child_that_is_opened_beside_its_root_counts_in_the_same_tree(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=delegating([*SCRIPT, "Again."]).sections(), working_dir=work) as session:
        await session.execute("Ask the helper")
        async with home.sessions.resume(child_of(home, session)) as child:
            await child.execute("More")
            await session.execute("And you?")
            await child.execute("Still more")

    members = (session.session_id, child.session_id)
    numbers = [event["seq"] for member in members for event in home.sessions.events(member)]
    assert len(numbers) == len(set(numbers))
    assert home.sessions.get(child.session_id).usage_tree is None


async def test_a_child_that_is_opened_on_its_own_holds_its_whole_tree(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=delegating([*SCRIPT, "Again."]).sections(), working_dir=work) as session:
        await session.execute("Ask the helper")
    root_id, child_id = session.session_id, child_of(home, session)
    before = home.sessions.get(root_id).usage_tree
    assert before is not None

    async with home.sessions.resume(child_id) as child:
        assert home.sessions.holder(root_id) is not None
        await child.execute("More")
        alone = home.sessions.get(root_id).usage_tree
        async with home.sessions.resume(root_id) as root:
            assert root.approvals is child.approvals
            await root.execute("And you?")
        assert home.sessions.holder(root_id) is not None
        await child.execute("Still more")

    assert (home.sessions.holder(root_id), home.sessions.holder(child_id)) == (None, None)
    after = home.sessions.get(root_id).usage_tree
    assert alone is not None
    assert after is not None
    used = [tree["by_agent"]["helper"]["tokens"]["total"] for tree in (before, alone, after)]
    assert used == sorted(set(used))
    children = home.sessions.children(root_id)
    assert used[-1] == sum((child.usage or {})["tokens"]["total"] for child in children)
    members = (root_id, *(child.session_id for child in children))
    numbers = [event["seq"] for member in members for event in home.sessions.events(member)]
    assert len(numbers) == len(set(numbers))


async def test_what_is_allowed_for_ever_in_a_child_is_allowed_in_its_tree(home: Home, work: Path) -> None:
    run = call("bash", command="true")
    helper = {**HELPER, "providers": [{"module": "provider-mock", "config": {"script": [run, "Done."]}}]}
    guard = {"module": "hooks-approval", "config": {"ask_user_fallback": True}}
    agent = Agent(SCRIPT, [{"module": "tool-task"}, {"module": "tool-bash"}], [guard], {"helper": helper})
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        await session.execute("Ask the helper, whom no one allows anything")
    asked: list[str] = []

    def always(approval: Approval) -> ApprovalDecision:
        asked.append(approval.session_id)
        return ApprovalDecision("allow", remember=True)

    async with home.sessions.resume(child_of(home, session), approver=Callback(always)) as child:
        alone = await child.execute("Run it")
    async with home.sessions.resume(session.session_id, approver=Callback(always)) as root:
        await root.execute("Ask the helper again")

    assert [tool.status for tool in alone.tool_calls] == ["done"]
    assert asked == [child.session_id]
    for below in home.sessions.children(session.session_id):
        assert "tool:outcome" in [event["event"] for event in home.sessions.events(below.session_id)]
