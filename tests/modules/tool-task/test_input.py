"""What the model is shown, and what becomes of a call that cannot be carried out."""

import ast
import inspect
import logging
import sys
from pathlib import Path
from typing import Any

import amplifier_module_tool_task
import pytest
from amplifier_module_tool_task import TaskTool, mount

from amplifier_core.testing import MockCoordinator


def without_descriptions(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_descriptions(value)
        for key, value in schema.items()
        if key != "description" or not isinstance(value, str)
    }


def test_the_schema_is_the_one_that_is_promised(desk: Any) -> None:
    text = {"type": "string"}

    assert without_descriptions(desk.tool.get_schema()) == {
        "type": "object",
        "properties": {
            "agent": text,
            "instruction": text,
            "session_id": text,
            "inherit_context": {"type": "string", "enum": ["none", "recent", "all"]},
            "inherit_context_turns": {"type": "integer"},
            "provider_preferences": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"provider": text, "model": text},
                    "required": ["provider", "model"],
                },
            },
        },
        "required": ["instruction"],
    }


def test_the_description_lists_the_agents_of_the_plan_by_name(desk: Any) -> None:
    desk.coordinator.config["agents"] = {
        "writer": {"description": "Writes\n  prose. "},
        "dirs": {"description": "no agent"},
        "include": {},
        "inline": {},
        "broken": "no agent either",
        7: {"description": "not even a name"},
        "long": {"description": "x" * 600},
        "mute": {"description": None},
        "critic": {},
    }

    lines = [line for line in desk.tool.description.splitlines() if line.startswith("  - ")]

    assert lines == [
        "  - critic: No description",
        f"  - long: {'x' * 500}",
        "  - mute: No description",
        "  - writer: Writes prose.",
    ]


def test_the_description_follows_the_plan(desk: Any) -> None:
    desk.coordinator.config["agents"]["late"] = {"description": "Came later."}

    assert "  - late: Came later." in desk.tool.description


@pytest.mark.parametrize("config", [{}, None, {"agents": None}, {"agents": []}, {"agents": {"dirs": {}}}], ids=str)
async def test_without_agents_the_tool_says_that_it_is_unavailable(desk: Any, problem_of: Any, config: Any) -> None:
    desk.coordinator.config = config

    assert "navailable" in desk.tool.description
    assert problem_of(await desk.delegate()) == ("agent_not_found", "Agent 'bug-hunter' not found")


@pytest.mark.parametrize("instruction", [None, "", "  \n"], ids=repr)
@pytest.mark.parametrize("rest", [{}, {"agent": 3}, {"session_id": "child-1"}, {"provider_preferences": "x"}], ids=str)
async def test_an_empty_instruction_is_the_first_thing_to_be_refused(
    desk: Any, problem_of: Any, instruction: Any, rest: dict[str, Any]
) -> None:
    result = await desk.tool.execute({"instruction": instruction, **rest})

    assert problem_of(result) == ("invalid_input", "Instruction cannot be empty")


@pytest.mark.parametrize("agent", [None, "", " "], ids=repr)
async def test_without_an_agent_the_model_is_pointed_to_session_id(desk: Any, problem_of: Any, agent: Any) -> None:
    code, message = problem_of(await desk.delegate(agent=agent))

    assert code == "invalid_input"
    assert message.startswith("Agent name required")
    assert "session_id" in message


@pytest.mark.parametrize("agent", ["nobody", "dirs", "broken"])
async def test_an_unknown_agent_is_answered_with_those_there_are(desk: Any, problem_of: Any, agent: str) -> None:
    desk.coordinator.config["agents"] |= {"dirs": {}, "broken": "no dict"}

    result = await desk.delegate(agent=agent, provider_preferences=[{}])

    assert problem_of(result) == ("agent_not_found", f"Agent '{agent}' not found")
    assert result.error["available"] == ["Foundation:Bug Hunter", "bug-hunter"]
    assert desk.events == []


BAD_PREFERENCES: dict[str, Any] = {
    "no list": "mock",
    "no object": ["mock"],
    "null": [None],
    "no model": [{"provider": "mock"}],
    "no provider": [{"model": "m"}],
    "empty provider": [{"provider": " ", "model": "m"}],
    "a number": [{"provider": "mock", "model": 3}],
    "the second": [{"provider": "mock", "model": "m"}, {"provider": "mock", "model": None}],
    "config that is no object": [{"provider": "mock", "model": "m", "config": [1]}],
}


@pytest.mark.parametrize("preferences", BAD_PREFERENCES.values(), ids=BAD_PREFERENCES)
async def test_invalid_preferences_are_invalid_input_and_never_raise(
    desk: Any, problem_of: Any, preferences: Any
) -> None:
    code, message = problem_of(await desk.in_session(f"s-{'a' * 16}_x").delegate(provider_preferences=preferences))

    assert code == "invalid_input"
    assert "provider_preferences" in message
    assert desk.application.calls == []


@pytest.mark.parametrize(
    "given",
    [
        {"agent": 3},
        {"agent": ["bug-hunter"]},
        {"session_id": 3},
        {"inherit_context": "some"},
        {"inherit_context": True},
        {"inherit_context_turns": "5"},
        {"inherit_context_turns": True},
        {"provider_preferences": {}},
        {"instruction": ["x"]},
    ],
    ids=str,
)
async def test_a_value_of_the_wrong_type_is_invalid_input(desk: Any, problem_of: Any, given: dict[str, Any]) -> None:
    result = await desk.tool.execute({"agent": "bug-hunter", "instruction": "x", **given})

    assert problem_of(result)[0] == "invalid_input"
    assert desk.application.calls == desk.resumption.calls == []


async def test_null_stands_for_what_is_left_out_and_other_keys_for_nothing(desk: Any) -> None:
    optional = ["session_id", "inherit_context", "inherit_context_turns", "provider_preferences"]

    result = await desk.delegate(**dict.fromkeys(optional), _tool_call_id="x", colour="red")

    assert result.success
    assert desk.application.call["instruction"] == "Find the bug"


@pytest.mark.parametrize("coordinator", [None, object()], ids=["none", "bare"])
async def test_the_tool_answers_without_a_coordinator(coordinator: Any) -> None:
    tool = TaskTool(coordinator, None)

    results = [
        await tool.execute({"instruction": "x", "agent": "a"}),
        await tool.execute({"instruction": "x", "session_id": "s"}),
    ]

    assert tool.description
    assert [result.error["code"] for result in results] == ["agent_not_found", "capability_missing"]


async def test_values_that_do_not_fit_are_replaced_and_reported(
    make_desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "exclude_tools": [None],
        "max_recursion_depth": -2,
        "timeout": "soon",
        "max_concurrent": 0,
        "max_context_chars": True,
        "exclude_tool": ["tool-bash"],
    }
    desk = make_desk(**config)

    result = await desk.delegate()

    assert result.success
    assert desk.application.call["tool_inheritance"] == {"inherit_tools": []}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert all(any(repr(key) in warning for warning in warnings) for key in config)
    assert any("did you mean 'exclude_tools'" in warning for warning in warnings)


async def test_numbers_may_be_given_as_text_and_empty_texts_are_unset(
    make_desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = make_desk(max_recursion_depth="2", timeout="", max_concurrent="", inherit_tools="")

    result = await desk.in_session(f"s-{'a' * 16}_x").delegate()

    assert result.success
    assert desk.application.call["tool_inheritance"] == {}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_events_are_declared_in_the_channel_and_in_a_new_list_of_the_older_capability() -> None:
    coordinator, before = MockCoordinator(), ["other:event", "task:agent_spawned"]
    coordinator.register_capability("observability.events", before)

    await mount(coordinator, {})

    names = ["spawned", "resumed", "completed", "timeout", "cancelled"]
    events = [f"task:agent_{name}" for name in names]
    assert await coordinator.collect_contributions("observability.events") == [events]
    assert coordinator.get_capability("observability.events") == ["other:event", *events]
    assert before == ["other:event", "task:agent_spawned"]


async def test_the_older_capability_is_made_where_there_is_none_and_left_alone_where_it_is_no_list() -> None:
    without, with_another = MockCoordinator(), MockCoordinator()
    announce = list[str]
    with_another.register_capability("observability.events", announce)

    for coordinator in (without, with_another):
        await mount(coordinator, {})

    assert len(without.get_capability("observability.events")) == 5
    assert with_another.get_capability("observability.events") is announce


def test_the_module_does_not_import_the_foundation_nor_anything_but_kernel_and_kit() -> None:
    package = Path(inspect.getfile(amplifier_module_tool_task)).parent
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in package.glob("*.py")]

    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
    }

    assert imported - sys.stdlib_module_names == {"amplifier_core", "amplifier_kit"}
