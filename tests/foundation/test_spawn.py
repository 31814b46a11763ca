"""Delegation with the real tool, the real loop and the mock provider."""

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import amplifier_core
from amplifier_core import AmplifierSession
from amplifier_foundation.bundle import Bundle, PreparedBundle
from amplifier_foundation.exceptions import BundleDependencyError, BundleLoadError
from amplifier_foundation.spawn import Order, child_bundle, register_spawn

AGENTS: dict[str, dict[str, Any]] = {
    "scout": {"description": "Looks around", "instruction": "You are the scout."},
    "inline": {"description": "Inline", "system": {"instruction": "You are inline."}},
}

RESUME = """
import asyncio, json, sys
from pathlib import Path
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.spawn import register_spawn

async def main():
    fields, store, session_id = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    prepared = await Bundle("root", **fields).prepare(cache_dir=store / "cache")
    async with prepared.create_session() as session:
        register_spawn(session, prepared, store=store)
        resume = session.coordinator.get_capability("session.resume")
        print(json.dumps(await resume(sub_session_id=session_id, instruction="and now?")))

asyncio.run(main())
"""


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-mock", "config": {"mode": "echo"}}],
        "agents": AGENTS,
        **changes,
    }


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[..., Any]:
    async def make(**changes: Any) -> PreparedBundle:
        return await Bundle("root", **fields(**changes)).prepare(cache_dir=tmp_path / "cache")

    return make


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[AmplifierSession]:
    created: list[AmplifierSession] = []

    class Noted(AmplifierSession):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            created.append(self)

    monkeypatch.setattr(amplifier_core, "AmplifierSession", Noted)
    return created


async def spawned(
    prepared: PreparedBundle, agent_name: str = "scout", *, store: Path | None = None, **options: Any
) -> dict[str, Any]:
    """Spawn one child of a new session and return its answer."""
    async with prepared.create_session(session_id="parent") as session:
        register_spawn(session, prepared, store=store)
        spawn = session.coordinator.get_capability("session.spawn")
        call = {"agent_configs": AGENTS, "parent_session": session, **options}
        answer: dict[str, Any] = await spawn(agent_name=agent_name, instruction="go", **call)
        return answer


def run(command: list[str]) -> Any:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def modules(session: AmplifierSession, section: str) -> list[str]:
    return [entry["module"] for entry in session.config.get(section, [])]


async def test_the_task_tool_delegates_through_it_end_to_end(prepare: Any, sessions: list[AmplifierSession]) -> None:
    script = [
        {
            "when": {"contains": "start"},
            "tool_calls": [{"name": "task", "arguments": {"agent": "scout", "instruction": "look left"}}],
        },
        {"when": {"role": "tool"}, "text": "The agent said: {{last_tool_result}}"},
        {"text": "I heard {{last_user}}", "usage": {"cost_usd": "0.5"}},
    ]
    prepared = await prepare(
        providers=[{"module": "provider-mock", "config": {"script": script}}], tools=[{"module": "tool-task"}]
    )

    async with prepared.create_session() as session:
        register_spawn(session, prepared)
        answer = await session.execute("start")
        costs = await session.coordinator.collect_contributions("session.cost")

    child = sessions[1]
    assert "I heard look left" in answer
    assert child.parent_id == session.session_id
    assert child.session_id.endswith("_scout")
    assert {"cost_usd": Decimal("0.5")} in costs


@pytest.mark.parametrize(
    ("agent", "instruction"), [("scout", "You are the scout."), ("inline", "You are inline."), ("self", "Root.")]
)
async def test_an_agents_instruction_is_the_childs_system_prompt(
    prepare: Any, sessions: list[AmplifierSession], agent: str, instruction: str
) -> None:
    prepared = await prepare(instruction="Root.")

    await spawned(prepared, agent)

    messages = await sessions[1].coordinator.get("context").get_messages_for_request()
    assert messages[0] == {"role": "system", "content": instruction}


async def test_mentions_of_an_agent_lead_into_the_bundles_namespaces(
    tmp_path: Path, prepare: Any, sessions: list[AmplifierSession]
) -> None:
    (tmp_path / "guide.md").write_text("the guide")
    prepared = await prepare(source_base_paths={"lib": tmp_path})

    await spawned(prepared, "x", agent_configs={"x": {"instruction": "Read @lib:guide.md"}})

    messages = await sessions[1].coordinator.get("context").get_messages_for_request()
    assert "the guide" in messages[0]["content"]


async def test_an_unknown_agent_is_named_with_those_there_are(prepare: Any) -> None:
    with pytest.raises(BundleDependencyError, match="Agent 'ghost' not found") as caught:
        await spawned(await prepare(), "ghost")

    assert "scout" in str(caught.value)


async def test_the_definition_is_laid_over_the_parents_plan(prepare: Any, sessions: list[AmplifierSession]) -> None:
    prepared = await prepare(
        tools=[{"module": "tool-todo", "config": {"list": [1, 2], "keep": True}}, {"module": "tool-search"}]
    )
    definition = {
        "tools": ["tool-task", {"module": "tool-todo", "config": {"list": [3]}}],
        "session": {"orchestrator": {"module": "loop-basic", "config": {"max_iterations": 4}}},
    }

    await spawned(
        prepared,
        "x",
        agent_configs={"x": definition},
        orchestrator_config={"max_iterations": 9, "other": 1},
        session_metadata={"agent_name": "x"},
    )

    child = sessions[1]
    assert modules(child, "tools") == ["tool-todo", "tool-search", "tool-task"]
    assert child.config["tools"][0]["config"] == {"list": [3], "keep": True}
    assert child.config["session"]["orchestrator"]["config"] == {"max_iterations": 4, "other": 1}
    assert child.config["session"]["metadata"] == {"agent_name": "x"}
    assert prepared.mount_plan["tools"][0]["config"] == {"list": [1, 2], "keep": True}


TOOLS = [{"module": "tool-todo"}, {"module": "tool-search"}, {"module": "tool-filesystem"}]


@pytest.mark.parametrize(
    ("policy", "call", "expected"),
    [
        ({}, {}, ["tool-todo", "tool-search", "tool-filesystem", "tool-task"]),
        ({"tools": ["tool-search"]}, {}, ["tool-search", "tool-task"]),
        ({"exclude_tools": ["tool-todo"]}, {}, ["tool-search", "tool-filesystem", "tool-task"]),
        ({}, {"exclude_tools": ["tool-todo", "tool-task"]}, ["tool-search", "tool-filesystem", "tool-task"]),
        ({}, {"inherit_tools": ["tool-todo"]}, ["tool-todo", "tool-task"]),
        ({}, {"inherit_tools": []}, ["tool-task"]),
    ],
)
async def test_tools_are_inherited_by_the_bundles_and_the_calls_policy(
    prepare: Any,
    sessions: list[AmplifierSession],
    policy: dict[str, Any],
    call: dict[str, Any],
    expected: list[str],
) -> None:
    prepared = await prepare(tools=TOOLS, spawn=policy)

    await spawned(prepared, "x", agent_configs={"x": {"tools": ["tool-task"]}}, tool_inheritance=call)

    assert modules(sessions[1], "tools") == expected


async def test_an_agents_own_policy_takes_tools_from_that_agent_alone(
    prepare: Any, sessions: list[AmplifierSession], caplog: pytest.LogCaptureFixture
) -> None:
    tools = [{"module": "tool-todo"}, {"module": "tool-search"}]
    agents = {
        "bare": {"spawn": {"exclude_tools": ["tool-todo", "tool-search"]}, "tools": [{"module": "tool-search"}]},
        "scout": {},
    }
    prepared = await prepare(tools=tools, agents=agents, spawn={"exclude_tools": ["tool-mcp"]})

    for name in ("bare", "scout", "scout"):
        await spawned(prepared, name, agent_configs=agents)

    assert [modules(session, "tools") for session in sessions if session.parent_id] == [
        ["tool-search"],
        ["tool-todo", "tool-search"],
        ["tool-todo", "tool-search"],
    ]
    assert caplog.text.count("takes tool-mcp from every agent") == 1


@pytest.mark.parametrize(
    ("policy", "call", "expected"),
    [
        ({"exclude_hooks": ["hooks-logging"]}, {}, ["hooks-redaction"]),
        ({}, {"exclude_hooks": ["hooks-logging"]}, ["hooks-redaction"]),
        ({}, {"inherit_hooks": ["hooks-logging"]}, ["hooks-logging"]),
    ],
)
async def test_hooks_are_inherited_by_the_same_rules(
    prepare: Any,
    sessions: list[AmplifierSession],
    tmp_path: Path,
    policy: dict[str, Any],
    call: dict[str, Any],
    expected: list[str],
) -> None:
    logging = {"module": "hooks-logging", "config": {"path": str(tmp_path / "log.jsonl")}}
    prepared = await prepare(hooks=[logging, {"module": "hooks-redaction"}], spawn=policy)

    await spawned(prepared, "self", hook_inheritance=call)

    assert modules(sessions[1], "hooks") == expected


@pytest.mark.parametrize(
    ("access", "expected"),
    [("none", []), ("all", ["inline", "scout", "x"]), (None, ["inline", "scout", "x"]), (["scout", "gone"], ["scout"])],
)
async def test_an_agent_sees_the_agents_it_may_use(
    prepare: Any, sessions: list[AmplifierSession], access: Any, expected: list[str]
) -> None:
    definition = {"instruction": "x", "agents": access}

    await spawned(await prepare(), "x", agent_configs={"x": definition})

    agents = sessions[1].config.get("agents", {})
    assert sorted(agents) == expected
    assert agents.get("scout") is not AGENTS["scout"]


class Roles:
    async def resolve(self, role: str) -> list[dict[str, str]]:
        return [{"provider": "mock", "model": f"{role}-model"}] if role == "fast" else []


@pytest.mark.parametrize(
    ("definition", "given", "model"),
    [
        ({"provider_preferences": [{"provider": "mock", "model": "a"}], "model_role": "fast"}, None, "a"),
        ({"provider_preferences": [{"provider": "mock", "model": "a"}]}, [{"provider": "mock", "model": "b"}], "b"),
        ({"model_role": ["slow", "fast"]}, None, "fast-model"),
        ({"model_role": "slow"}, None, None),
        ({"provider_preferences": [{"provider": "mock", "model": "a"}]}, "fast", "fast-model"),
        ({"provider_preferences": [{"provider": "mock", "model": "a"}]}, ["slow"], "a"),
    ],
)
async def test_preferences_come_from_the_call_the_agent_or_its_role(
    prepare: Any, sessions: list[AmplifierSession], definition: dict[str, Any], given: Any, model: str | None
) -> None:
    is_role = isinstance(given, str) or (isinstance(given, list) and isinstance(given[0], str))
    choice = {"model_role": given} if is_role else {"provider_preferences": given}
    prepared = await prepare()
    async with prepared.create_session() as session:
        session.coordinator.register_capability("model_role_resolver", Roles())
        register_spawn(session, prepared)
        spawn = session.coordinator.get_capability("session.spawn")
        await spawn(agent_name="x", instruction="go", agent_configs={"x": definition}, **choice)

    assert sessions[1].config["providers"][0]["config"].get("default_model") == model


async def test_children_can_delegate_in_turn(prepare: Any, sessions: list[AmplifierSession]) -> None:
    await spawned(await prepare())

    assert callable(sessions[1].coordinator.get_capability("session.spawn"))
    assert sessions[1].coordinator.get_capability("session.resume") is None


async def test_a_call_without_an_id_gets_one_and_hands_messages_down(
    prepare: Any, sessions: list[AmplifierSession]
) -> None:
    history = [{"role": "user", "content": "earlier"}]

    answer = await spawned(await prepare(), parent_messages=history)

    assert answer["session_id"].endswith("_scout")
    assert "earlier" in str(await sessions[1].coordinator.get("context").get_messages())


async def test_a_stored_child_is_resumed_with_its_conversation_in_another_process(tmp_path: Path, prepare: Any) -> None:
    store = tmp_path / "store"
    answer = await spawned(await prepare(), store=store, sub_session_id="parent-0123456789abcdef_scout")

    command = [sys.executable, "-c", RESUME, json.dumps(fields()), str(store), answer["session_id"]]
    resumed = run(command)

    assert resumed["session_id"] == answer["session_id"]
    assert "and now?" in resumed["output"]
    lines = (store / answer["session_id"] / "transcript.jsonl").read_text().splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["user", "assistant", "user", "assistant"]


async def test_a_child_of_an_agent_that_only_the_call_defined_is_resumed_too(
    tmp_path: Path, prepare: Any, sessions: list[AmplifierSession]
) -> None:
    prepared = await prepare()
    answer = await spawned(prepared, "adhoc", store=tmp_path, agent_configs={"adhoc": {"instruction": "Ad hoc."}})

    async with prepared.create_session() as session:
        register_spawn(session, prepared, store=tmp_path)
        await session.coordinator.get_capability("session.resume")(answer["session_id"], "again")

    messages = await sessions[-1].coordinator.get("context").get_messages_for_request()
    assert messages[0]["content"] == "Ad hoc."
    assert sessions[-1].is_resumed


@pytest.mark.parametrize("session_id", ["never-seen", "../outside", "a/b", ""])
async def test_a_session_that_is_not_stored_is_not_found(tmp_path: Path, prepare: Any, session_id: str) -> None:
    prepared = await prepare()
    async with prepared.create_session() as session:
        register_spawn(session, prepared, store=tmp_path)
        resume = session.coordinator.get_capability("session.resume")
        with pytest.raises(FileNotFoundError):
            await resume(sub_session_id=session_id, instruction="x")


async def test_a_resumed_child_keeps_its_model_until_a_call_prefers_another(
    tmp_path: Path, prepare: Any, sessions: list[AmplifierSession]
) -> None:
    prepared = await prepare()
    first = [{"provider": "mock", "model": "first"}]
    answer = await spawned(prepared, store=tmp_path, provider_preferences=first)

    async with prepared.create_session() as session:
        register_spawn(session, prepared, store=tmp_path)
        session.coordinator.register_capability("model_role_resolver", Roles())
        resume = session.coordinator.get_capability("session.resume")
        await resume(answer["session_id"], "again")
        await resume(answer["session_id"], "again", model_role="fast")
        await resume(answer["session_id"], "again")
        await resume(answer["session_id"], "again", [{"provider": "mock", "model": "other"}])

    children = [session for session in sessions if session.parent_id]
    models = [child.config["providers"][0]["config"]["default_model"] for child in children]
    assert models == ["first", "first", "fast-model", "fast-model", "other"]


SEER = """
async def mount(coordinator, config=None):
    names = ("session.routing", "runtime_skill_overlay", "runtime_context_overlay", "mention_resolver",
             "session.working_dir", "self_delegation_depth")
    seen = {name: coordinator.get_capability(name) for name in names}
    coordinator.register_capability("seen", {**seen, "metadata": coordinator.config["session"].get("metadata")})
"""


async def test_a_child_finds_what_it_inherits_when_its_modules_are_mounted(
    tmp_path: Path, prepare: Any, sessions: list[AmplifierSession]
) -> None:
    package = tmp_path / "hooks-seer" / "amplifier_module_hooks_seer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SEER)
    prepared = await prepare(hooks=[{"module": "hooks-seer", "source": str(package.parent)}])
    routing, skills = {"preresolved_models": {}}, ["@x:skills/notes"]
    async with prepared.create_session(session_id="parent", session_cwd=tmp_path) as session:
        register_spawn(session, prepared)
        offered = {"session.routing": routing, "runtime_skill_overlay": skills, "runtime_context_overlay": ["@x:c"]}
        for name, value in {**offered, "mention_resolver": prepared}.items():
            session.coordinator.register_capability(name, value)
        overlay = session.coordinator.get_capability("session.runtime_overlay")
        added = overlay(success_event="mode:transition_completed", failure_event="mode:activation_failed")
        await added.apply("mode:audit", {"agents": {"auditor": {"instruction": "Audit."}}})
        session.coordinator.register_capability("runtime_skill_overlay", skills)
        spawn = session.coordinator.get_capability("session.spawn")
        metadata = {"skill_name": "notes", "context": "fork", "is_forked_skill_session": True}
        await spawn("auditor", "go", session_metadata=metadata, self_delegation_depth=2, use_subprocess=True)

    seen = sessions[1].coordinator.get_capability("seen")
    assert seen.pop("runtime_skill_overlay") == skills
    assert seen == {
        "session.routing": routing,
        "runtime_context_overlay": None,
        "mention_resolver": prepared,
        "session.working_dir": str(tmp_path),
        "self_delegation_depth": 2,
        "metadata": metadata,
    }
    assert "auditor" in sessions[1].config["agents"]
    assert "auditor" not in prepared.mount_plan["agents"]


async def test_the_mode_of_a_session_binds_all_sessions_below_it(
    prepare: Any, sessions: list[AmplifierSession]
) -> None:
    asked: list[tuple[str, str]] = []

    def guard_of(coordinator: Any) -> Any:
        async def guard(tool_name: str, tool: Any, tool_input: Any, proceed: Any) -> Any:
            if tool_name == "task":
                return await proceed(tool_input)
            asked.append((coordinator.session.session_id, tool_name))
            return amplifier_core.ToolResult(success=False, error={"message": "the mode says no"})

        return guard

    writing = {
        "instruction": "Write.",
        "tools": [{"module": "tool-filesystem"}],
        "providers": [
            {
                "module": "provider-mock",
                "config": {
                    "script": [
                        {"when": {"role": "tool"}, "text": "{{last_tool_result}}"},
                        {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "x", "content": "x"}}]},
                    ]
                },
            }
        ],
    }
    delegating = [
        {"when": {"role": "tool"}, "text": "{{last_tool_result}}"},
        {"tool_calls": [{"name": "task", "arguments": {"agent": "writer", "instruction": "Write"}}]},
    ]
    prepared = await prepare(
        agents={
            "writer": writing,
            "middle": {
                "tools": [{"module": "tool-task", "config": {"max_recursion_depth": -1}}],
                "providers": [{"module": "provider-mock", "config": {"script": delegating}}],
            },
        }
    )
    async with prepared.create_session(session_id="parent") as session:
        register_spawn(session, prepared)
        session.coordinator.register_capability("mode.guard", guard_of)
        spawn = session.coordinator.get_capability("session.spawn")
        direct = await spawn("writer", "go")
        indirect = await spawn("middle", "go")

    assert "the mode says no" in direct["output"]
    assert "the mode says no" in indirect["output"]
    writers = [session.session_id for session in sessions if session.session_id.endswith("_writer")]
    assert asked == [(writer, "write_file") for writer in writers]
    assert len(writers) == 2


async def test_a_session_of_a_newer_release_is_refused(tmp_path: Path, prepare: Any) -> None:
    prepared = await prepare()
    answer = await spawned(prepared, store=tmp_path)
    file = tmp_path / answer["session_id"] / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 99}))

    async with prepared.create_session() as session:
        register_spawn(session, prepared, store=tmp_path)
        with pytest.raises(BundleLoadError, match="format 99"):
            await session.coordinator.get_capability("session.resume")(answer["session_id"], "x")


async def test_a_failing_child_keeps_what_was_said(tmp_path: Path, prepare: Any) -> None:
    failing = {"module": "provider-mock", "config": {"script": [{"error": "auth"}]}}
    prepared = await prepare(providers=[failing])

    with pytest.raises(amplifier_core.AuthenticationError):
        await spawned(prepared, store=tmp_path, sub_session_id="child")

    assert "go" in (tmp_path / "child" / "transcript.jsonl").read_text()


async def test_an_agent_can_configure_an_instance_by_its_id_alone(
    prepare: Any, sessions: list[AmplifierSession]
) -> None:
    prepared = await prepare(tools=[{"module": "tool-todo", "id": "mine", "config": {"keep": True}}])
    definition = {"tools": [{"id": "mine", "config": {"more": 1}}, {"id": "gone"}]}

    await spawned(prepared, "x", agent_configs={"x": definition}, tool_inheritance={"exclude_tools": ["tool-todo"]})

    (tool,) = sessions[1].config["tools"]
    assert (tool["module"], tool["config"]) == ("tool-todo", {"keep": True, "more": 1})


class Gate:
    """Decides about the calls of a session and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, tool_name: str, frozen_input: dict[str, Any], call: Any) -> Any:
        self.asked.append(tool_name)
        return SimpleNamespace(approved=False, reason="the outer session says no", source="provider")


@pytest.mark.parametrize("hooks", [[], [{"module": "hooks-approval", "config": {"auto_approve": True}}]], ids=str)
async def test_a_child_keeps_its_parents_gate_whatever_its_own_hooks_allow(
    prepare: Any, sessions: list[AmplifierSession], hooks: list[dict[str, Any]], tmp_path: Path
) -> None:
    script = [
        {"when": {"role": "tool"}, "text": "{{last_tool_result}}"},
        {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "made.txt", "content": "x"}}]},
    ]
    providers = [{"module": "provider-mock", "config": {"script": script}}]
    tools = [{"module": "tool-filesystem", "config": {"working_dir": str(tmp_path)}}]
    prepared = await prepare(providers=providers, tools=tools)
    gate = Gate()

    async with prepared.create_session(session_id="parent") as session:
        session.coordinator.register_capability("approval.gate", gate)
        register_spawn(session, prepared)
        spawn = session.coordinator.get_capability("session.spawn")
        agents = {"scout": {"instruction": "Write.", "hooks": hooks}}
        answer = await spawn(agent_name="scout", instruction="go", agent_configs=agents, parent_session=session)

    assert "the outer session says no" in answer["output"]
    assert gate.asked == ["write_file"]
    assert not (tmp_path / "made.txt").exists()


async def test_a_child_has_its_parents_policy_or_less(prepare: Any, sessions: list[AmplifierSession]) -> None:
    rules = {"read": {"deny": ["data"]}, "write": {"allow": ["out"]}}
    prepared = await prepare(session={"orchestrator": "loop-basic", "context": "context-simple", "policy": rules})
    wider = {"write": {"allow": ["/"]}, "read": {"allow": ["/", "data"], "deny": ["more"]}}
    agents = {"scout": {"instruction": "Look.", "session": {"policy": wider}}}

    await spawned(prepared, agent_configs=agents)

    policy = sessions[1].coordinator.get_capability("session.policy")
    for path in ("data/x", "more/x"):
        with pytest.raises(PermissionError):
            policy.check_read(path)
    with pytest.raises(PermissionError):
        policy.check_write("elsewhere/x")
    assert policy.check_write("out/x")


@pytest.mark.parametrize("given", [{"exclude_hooks": ["hooks-guard", "hooks-seen"]}, {"inherit_hooks": []}])
def test_a_required_hook_goes_with_every_child(given: dict[str, Any]) -> None:
    hooks = [{"module": "hooks-guard", "required": True}, {"module": "hooks-seen"}]
    plan = fields(hooks=hooks, spawn={"exclude_hooks": ["hooks-guard", "hooks-seen"]})
    order = Order.of("scout", AGENTS["scout"], AGENTS, hook_inheritance=given)

    assert child_bundle(Bundle("root"), plan, order).hooks == [hooks[0]]
