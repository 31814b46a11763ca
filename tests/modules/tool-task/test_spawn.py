"""What the application is asked for when a task is handed to an agent, and what the model hears of its answer."""

import re
from typing import Any

import pytest

HOP = f"-{'0123456789abcdef'}_helper"
KEYWORDS = {
    "agent_name",
    "instruction",
    "parent_session",
    "agent_configs",
    "sub_session_id",
    "tool_inheritance",
    "hook_inheritance",
    "orchestrator_config",
    "provider_preferences",
}


async def test_a_spawn_that_records_its_keywords_gets_exactly_the_promised_ones(desk: Any) -> None:
    await desk.delegate("Find the bug")

    call = desk.application.call
    assert set(call) == KEYWORDS
    assert (call["agent_name"], call["instruction"]) == ("bug-hunter", "Find the bug")
    assert call["parent_session"] is desk.coordinator.session
    assert call["agent_configs"] == desk.coordinator.config["agents"]
    assert (call["tool_inheritance"], call["hook_inheritance"]) == ({}, {})
    assert (call["orchestrator_config"], call["provider_preferences"]) == (None, None)


async def test_agent_configs_hold_agents_only(desk: Any) -> None:
    desk.coordinator.config["agents"] |= {"dirs": ["./agents"], "inline": {}, "broken": None}

    await desk.delegate()

    assert list(desk.application.call["agent_configs"]) == ["Foundation:Bug Hunter", "bug-hunter"]


@pytest.mark.parametrize(
    ("agent", "suffix"),
    [
        ("Foundation:Bug Hunter", "foundation-bug-hunter"),
        ("--Ärger__2--", "rger-2"),
        ("???", "agent"),
    ],
)
async def test_the_id_of_a_child_tells_its_parent_and_its_agent(desk: Any, agent: str, suffix: str) -> None:
    desk.coordinator.config["agents"][agent] = {}

    await desk.delegate(agent=agent)

    assert re.fullmatch(f"test-session-[0-9a-f]{{16}}_{suffix}", desk.application.call["sub_session_id"])


async def test_two_children_have_two_ids(desk: Any) -> None:
    await desk.delegate()
    await desk.delegate()

    assert len({call["sub_session_id"] for call in desk.application.calls}) == 2


@pytest.mark.parametrize(
    "session_id",
    ["5f0c-41", "0b6f3c1e-5a0f-4a51-9d0e-0123456789ab", "run-0123456789abcdef", "run-0123456789ABCDEF_x", "a_b"],
)
async def test_the_root_session_spawns(desk: Any, session_id: str) -> None:
    assert (await desk.in_session(session_id).delegate()).success


async def test_a_session_whose_id_has_one_hop_is_refused_at_the_default_depth(desk: Any, problem_of: Any) -> None:
    code, message = problem_of(await desk.in_session(f"root{HOP}").delegate())

    assert code == "recursion_limit"
    assert message.startswith("Maximum recursion depth exceeded")
    assert (desk.application.calls, desk.events) == ([], [])


async def test_two_hops_are_allowed_with_a_maximum_of_three_and_three_are_not(make_desk: Any) -> None:
    desk = make_desk(max_recursion_depth=3)

    assert (await desk.in_session(f"root{HOP}{HOP}").delegate()).success
    assert (await desk.in_session(f"root{HOP}{HOP}{HOP}").delegate()).error["code"] == "recursion_limit"


@pytest.mark.parametrize(("maximum", "hops", "is_allowed"), [(0, 0, False), (-1, 9, True)])
async def test_a_maximum_of_zero_disables_spawning_and_minus_one_lifts_the_limit(
    make_desk: Any, maximum: int, hops: int, is_allowed: bool
) -> None:
    desk = make_desk(max_recursion_depth=maximum).in_session("root" + HOP * hops)

    assert (await desk.delegate()).success is is_allowed


@pytest.mark.parametrize(
    ("depth", "session_id", "is_allowed"),
    [(0, f"root{HOP}", True), (1, "root", False), (True, "root", True), ("1", "root", True), (None, "root", True)],
)
async def test_the_capability_task_depth_counts_more_than_the_id(
    desk: Any, depth: Any, session_id: str, is_allowed: bool
) -> None:
    desk.serve(depth, "task.depth")

    assert (await desk.in_session(session_id).delegate()).success is is_allowed


@pytest.mark.parametrize("capability", [None, "not callable"])
async def test_without_an_application_the_missing_capability_is_named(
    desk: Any, problem_of: Any, capability: Any
) -> None:
    desk.serve(capability)

    code, message = problem_of(await desk.delegate())

    assert code == "capability_missing"
    assert "unavailable" in message
    assert "session.spawn" in message
    assert desk.events == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ({}, {})),
        ({"exclude_tools": ["tool-bash"]}, ({"exclude_tools": ["tool-bash"]}, {})),
        ({"inherit_tools": ["tool-todo"]}, ({"inherit_tools": ["tool-todo"]}, {})),
        ({"inherit_tools": []}, ({"inherit_tools": []}, {})),
        ({"exclude_tools": ["a"], "inherit_tools": ["b"]}, ({"exclude_tools": ["a"]}, {})),
        ({"exclude_hooks": ["hooks-logging"]}, ({}, {"exclude_hooks": ["hooks-logging"]})),
        ({"exclude_hooks": [], "inherit_hooks": ["h"]}, ({}, {"inherit_hooks": ["h"]})),
        ({"exclude_hooks": ["a"], "inherit_hooks": ["b"]}, ({}, {"exclude_hooks": ["a"]})),
        ({"inherit_tools": 7, "inherit_hooks": [None]}, ({"inherit_tools": []}, {"inherit_hooks": []})),
    ],
    ids=str,
)
async def test_the_configuration_restricts_what_a_child_gets(make_desk: Any, config: Any, expected: Any) -> None:
    desk = make_desk(**config)

    await desk.delegate()

    call = desk.application.call
    assert (call["tool_inheritance"], call["hook_inheritance"]) == expected


async def test_an_application_that_changes_what_it_gets_changes_nothing_of_the_configuration(make_desk: Any) -> None:
    config = {"exclude_tools": ["tool-bash"]}
    desk = make_desk(**config)
    desk.coordinator.config["orchestrator"] = {"config": {"max_iterations": 3}}

    await desk.delegate()
    first = desk.application.calls.pop()
    first["tool_inheritance"]["exclude_tools"].clear()
    first["orchestrator_config"].clear()
    first["agent_configs"].clear()
    await desk.delegate()

    call = desk.application.call
    assert call["tool_inheritance"] == config == {"exclude_tools": ["tool-bash"]}
    assert call["orchestrator_config"] == {"max_iterations": 3}
    assert call["agent_configs"]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"orchestrator": {"config": {"a": 1}}, "session": {"orchestrator": {"config": {"b": 2}}}}, {"a": 1}),
        ({"orchestrator": {"module": "x"}, "session": {"orchestrator": {"config": {"b": 2}}}}, {"b": 2}),
        ({"session": {"orchestrator": {"module": "loop-basic", "config": {"b": 2}}}}, {"b": 2}),
        ({"session": {"orchestrator": {"module": "loop-basic", "config": None}}}, None),
        ({"session": {"orchestrator": {"module": "loop-basic", "config": "none"}}}, None),
        ({"orchestrator": "loop-basic", "session": None}, None),
        ({"session": "none"}, None),
    ],
    ids=str,
)
async def test_the_orchestrators_configuration_is_passed_on(desk: Any, plan: Any, expected: Any) -> None:
    desk.coordinator.config |= plan

    assert (await desk.delegate()).success
    assert desk.application.call["orchestrator_config"] == expected


async def test_mount_plans_that_name_the_orchestrator_with_a_string_work(desk: Any) -> None:
    desk.coordinator.config["session"] = {"orchestrator": "loop-basic", "context": "context-simple"}

    assert (await desk.delegate()).success
    assert desk.application.call["orchestrator_config"] is None


async def test_preferences_are_values_that_can_be_read_and_written_as_a_plan_has_them(desk: Any) -> None:
    given = [{"provider": "mock", "model": "m-*"}, {"provider": "other", "model": "n", "config": {"effort": "low"}}]

    await desk.delegate(provider_preferences=[*given, {"provider": "last", "model": "o", "config": None}])

    preferences = desk.application.call["provider_preferences"]
    assert [preference.to_dict() for preference in preferences] == [*given, {"provider": "last", "model": "o"}]
    assert (preferences[0].provider, preferences[0].model, preferences[0].config) == ("mock", "m-*", {})


async def test_an_empty_list_of_preferences_is_none(desk: Any) -> None:
    await desk.delegate(provider_preferences=[])

    assert desk.application.call["provider_preferences"] is None


async def test_an_older_spawn_is_called_without_what_it_does_not_take(desk: Any) -> None:
    seen: list[Any] = []

    async def spawn(
        agent_name: str, task: str, parent_session: Any, agent_configs: Any, sub_session_id: str, hook_inheritance: Any
    ) -> dict[str, Any]:
        seen.extend([agent_name, task, parent_session, list(agent_configs), hook_inheritance])
        return {"output": "done", "session_id": sub_session_id}

    desk.serve(spawn)
    result = await desk.delegate("Find the bug")

    assert result.success
    agents = ["Foundation:Bug Hunter", "bug-hunter"]
    assert seen == ["bug-hunter", "Find the bug", desk.coordinator.session, agents, {}]


async def test_a_spawn_that_takes_any_keyword_gets_them_all_and_a_task_if_it_needs_one(desk: Any) -> None:
    calls: list[dict[str, Any]] = []

    async def optional(agent_name: str, task: str = "", **rest: Any) -> dict[str, Any]:
        calls.append({"task": task, **rest})
        return {"output": "done"}

    async def required(agent_name: str, task: str, **rest: Any) -> dict[str, Any]:
        calls.append({"task": task, **rest})
        return {"output": "done"}

    for spawn in (optional, required):
        desk.serve(spawn)
        assert (await desk.delegate("Find")).success

    assert [(call["task"], call.get("instruction")) for call in calls] == [("", "Find"), ("Find", None)]
    assert all(set(call) >= KEYWORDS - {"agent_name", "instruction"} for call in calls)


async def test_a_spawn_that_lacks_what_every_one_takes_fails_the_delegation(desk: Any, problem_of: Any) -> None:
    async def spawn(agent_name: str) -> dict[str, Any]:
        return {"output": agent_name}

    desk.serve(spawn)

    result = await desk.delegate()

    assert problem_of(result)[0] == "delegation_failed"
    assert result.error["type"] == "TypeError"


async def test_a_spawn_need_not_be_a_coroutine_function(desk: Any) -> None:
    desk.serve(lambda **keywords: {"output": keywords["agent_name"]})

    assert (await desk.delegate()).output["response"] == "bug-hunter"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"output": "x", "session_id": "c"}, {"response": "x", "session_id": "c"}),
        ({"output": "", "session_id": "c", "status": None}, {"response": "", "session_id": "c"}),
        (
            {"output": "x", "session_id": "c", "status": "success", "turn_count": 2, "metadata": {}, "cost": 1},
            {"response": "x", "session_id": "c", "status": "success", "turn_count": 2, "metadata": {}},
        ),
    ],
    ids=str,
)
async def test_the_result_has_the_answer_and_what_the_application_says_about_it(
    desk: Any, returned: Any, expected: Any
) -> None:
    desk.application.answer = returned

    result = await desk.delegate()

    assert result.success
    assert result.output == {**expected, "agent": "bug-hunter"}


@pytest.mark.parametrize(
    "returned", [{"output": "x"}, {"output": "x", "session_id": ""}, {"output": "x", "session_id": 7}]
)
async def test_where_no_session_id_is_returned_the_generated_one_stands(desk: Any, returned: Any) -> None:
    desk.application.answer = returned

    result = await desk.delegate()

    assert result.output["session_id"] == desk.application.call["sub_session_id"]


@pytest.mark.parametrize("returned", [{}, {"session_id": "c"}, {"output": None}, "text", 7], ids=str)
async def test_an_answer_without_output_is_a_failure(desk: Any, problem_of: Any, returned: Any) -> None:
    desk.application.answer = returned

    code, message = problem_of(await desk.delegate())

    assert code == "delegation_failed"
    assert message.startswith("Delegation failed: ")
    assert desk.data("task:agent_completed")["success"] is False


async def test_a_session_without_an_id_can_delegate_too(desk: Any) -> None:
    await desk.in_session("").delegate()

    assert re.fullmatch(r"session-[0-9a-f]{16}_bug-hunter", desk.application.call["sub_session_id"])
