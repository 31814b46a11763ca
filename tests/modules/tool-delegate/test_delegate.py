"""What the tool asks of the application, and in which order it checks."""

import asyncio
from typing import Any

import pytest
from amplifier_module_tool_delegate import DelegateTool

from amplifier_core.testing import MockContextManager, wait_for


async def test_the_application_is_asked_with_everything_that_the_contract_names(desk: Any) -> None:
    desk.coordinator.config["session"] = {"orchestrator": {"module": "loop-basic", "config": {"max_iterations": 9}}}
    desk.coordinator._tool_dispatch_contexts = {
        asyncio.current_task(): {"tool_call_id": "call_1", "parallel_group_id": "group_1"}
    }

    result = await desk.delegate(provider_preferences=[{"provider": "mock", "model": "m-*"}], context_depth="none")

    call = desk.application.call
    preferences = call.pop("provider_preferences")
    sub_session_id = call.pop("sub_session_id")
    assert [preference.to_dict() for preference in preferences] == [{"provider": "mock", "model": "m-*"}]
    assert sub_session_id.endswith("_finder")
    assert call == {
        "agent_name": "finder",
        "instruction": "Find it",
        "parent_session": desk.coordinator.session,
        "agent_configs": dict(sorted(desk.coordinator.config["agents"].items())),
        "tool_inheritance": {"exclude_tools": ["tool-delegate"]},
        "hook_inheritance": {},
        "orchestrator_config": {"max_iterations": 9},
        "parent_messages": None,
        "self_delegation_depth": 0,
        "session_metadata": {"agent_name": "finder", "tool_call_id": "call_1", "parallel_group_id": "group_1"},
    }
    assert result.output == {
        "response": "found it",
        "session_id": "child-1",
        "agent": "finder",
        "status": "success",
        "turn_count": 3,
        "metadata": {},
    }


@pytest.mark.parametrize(
    ("config", "given", "code"),
    [
        ({}, {"instruction": " "}, "invalid_input"),
        ({}, {"instruction": "", "session_id": "0-1_x"}, "invalid_input"),
        ({"features": {"session_resume": {"enabled": False}}}, {"session_id": "0-1_x"}, "resume_disabled"),
        ({}, {"agent": ""}, "invalid_input"),
        ({"features": {"self_delegation": False}}, {"agent": "self"}, "self_disabled"),
        ({"features": {"self_delegation": {"max_depth": 0}}}, {"agent": "self"}, "SELF_DELEGATION_DEPTH_EXCEEDED"),
        ({}, {"agent": "nobody"}, "agent_not_found"),
        ({"max_depth": 0}, {}, "DELEGATION_DEPTH_EXCEEDED"),
        ({"max_total": 0}, {}, "DELEGATION_TOTAL_EXCEEDED"),
        ({"settings": {"max_spawns_per_session": 0}}, {}, "SPAWN_BUDGET_EXCEEDED"),
        ({}, {"session_id": "../x"}, "invalid_input"),
    ],
    ids=str,
)
async def test_what_cannot_be_delegated_is_refused_with_its_code(
    make_desk: Any, code_of: Any, config: Any, given: Any, code: str
) -> None:
    desk = make_desk(**config)

    result = await desk.tool.execute({"agent": "finder", "instruction": "x", **given})

    assert code_of(result) == code
    assert (desk.application.calls, desk.events) == ([], [])


async def test_an_unknown_agent_is_answered_with_those_there_are(desk: Any) -> None:
    result = await desk.delegate(agent="nobody")

    assert result.error["message"] == "Agent 'nobody' not found. Available: anchors:builder, finder"
    assert result.error["available"] == ["anchors:builder", "finder"]


async def test_a_name_with_a_namespace_is_left_to_the_application(desk: Any) -> None:
    assert (await desk.delegate(agent="other:unknown")).success


async def test_self_counts_how_deep_it_goes_and_another_agent_begins_anew(desk: Any) -> None:
    desk.coordinator.register_capability("self_delegation_depth", 2)

    await desk.delegate(agent="self")
    await desk.delegate(agent="finder")

    assert [call["self_delegation_depth"] for call in desk.application.calls] == [3, 0]


async def test_a_budget_of_agents_is_used_up_and_resuming_is_free(make_desk: Any, code_of: Any) -> None:
    desk = make_desk(settings={"max_spawns_per_session": 1})

    assert (await desk.delegate()).success
    assert code_of(await desk.delegate()) == "SPAWN_BUDGET_EXCEEDED"
    assert (await desk.resume()).success


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("max_llm_calls", -1, ValueError),
        ("max_llm_calls", True, TypeError),
        ("max_llm_calls", "3", TypeError),
        ("budget_warn_ratio", 2, ValueError),
        ("budget_warn_ratio", "x", TypeError),
    ],
)
def test_a_budget_that_is_none_is_an_error_of_the_author(key: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=key):
        DelegateTool(None, {"settings": {key: value}})


def test_a_number_of_spawns_that_is_none_counts_as_no_limit(make_desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    make_desk(settings={"max_spawns_per_session": "many"})

    assert "max_spawns_per_session" in caplog.text


@pytest.mark.parametrize(
    ("own", "agent", "given", "expected"),
    [
        (0, None, None, None),
        (7, None, None, 7),
        (7, 3, None, 3),
        (3, 7, None, 3),
        (7, 3, 5, 5),
        (None, None, 5, 5),
    ],
)
async def test_the_calls_of_the_model_are_limited_through_the_childs_orchestrator(
    make_desk: Any, own: Any, agent: Any, given: Any, expected: int | None
) -> None:
    desk = make_desk(settings={"max_llm_calls": own})
    if agent is not None:
        desk.coordinator.config["agents"]["finder"] = {"budget": {"max_llm_calls": agent}}

    result = await desk.delegate(**({} if given is None else {"max_llm_calls": given}))

    config = None if expected is None else {"max_iterations": expected, "budget_warn_ratio": 0.8}
    assert desk.application.call["orchestrator_config"] == config
    assert result.output["metadata"].get("budget_enforced", False) is (expected is not None)


CONVERSATION = [
    {"role": "user", "content": "one"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "tool": "delegate", "arguments": {"agent": "finder"}},
            {"id": "c2", "tool": "bash", "arguments": {}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "the agent's answer"},
    {"role": "tool", "tool_call_id": "c2", "content": "y" * 4001},
    {"role": "assistant", "content": "done"},
]


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("conversation", ["USER: one", "ASSISTANT: done"]),
        ("agents", ["USER: one", "ASSISTANT: [Agent Result from finder] the agent's answer", "ASSISTANT: done"]),
        (
            "full",
            [
                "USER: one",
                "ASSISTANT: [Agent Result from finder] the agent's answer",
                f"ASSISTANT: [Tool Result from bash] {'y' * (4000 - 24)}... [truncated]",
                "ASSISTANT: done",
            ],
        ),
    ],
)
async def test_the_agent_is_told_of_the_conversation_as_far_as_the_scope_goes(
    desk: Any, scope: str, told: list[str]
) -> None:
    await desk.coordinator.mount("context", MockContextManager(CONVERSATION))

    await desk.delegate(context_scope=scope)

    context, _, task = desk.application.call["instruction"].partition("[END PARENT CONTEXT]")
    assert task == "\n\n[YOUR TASK]\nFind it"
    assert context.split("\n\n")[1:-1] == told


async def test_recent_turns_are_at_most_those_that_the_configuration_allows(make_desk: Any) -> None:
    desk = make_desk(features={"context_inheritance": {"max_turns": 2}})
    await desk.coordinator.mount(
        "context", MockContextManager([{"role": "user", "content": str(number)} for number in range(9)])
    )

    await desk.delegate(context_turns=7)

    assert desk.application.call["instruction"].count("USER: ") == 2


def test_the_model_is_offered_what_the_features_and_the_resolver_allow(make_desk: Any, make_roles: Any) -> None:
    whole = make_desk()
    bare = make_desk(
        features=dict.fromkeys(
            ("self_delegation", "session_resume", "context_inheritance", "provider_selection"), False
        )
    )

    assert "model_role" not in whole.tool.input_schema["properties"]
    assert "not accepted" in bare.tool.input_schema["properties"]["agent"]["description"]
    assert list(bare.tool.input_schema["properties"]) == ["instruction", "agent", "max_llm_calls"]
    whole.coordinator.register_capability("model_role_resolver", make_roles(fast="m", coding="n"))
    assert whole.tool.input_schema["properties"]["model_role"]["enum"] == ["fast", "coding"]
    roles = make_roles()
    del roles.known_roles
    whole.coordinator.register_capability("model_role_resolver", roles)
    assert "enum" not in whole.tool.input_schema["properties"]["model_role"]
    assert "finder: Finds things." in whole.tool.description


async def test_the_tree_runs_only_so_many_at_once_and_a_waiting_parent_keeps_no_place(make_desk: Any) -> None:
    desk = make_desk(max_concurrent=1)
    inner = make_desk(max_concurrent=1)
    limits = desk.coordinator.get_capability("delegation.limits")

    async def spawn(**keywords: Any) -> Any:
        inner.coordinator.session_id = keywords["sub_session_id"]
        inner.coordinator.register_capability("delegation.limits", limits)
        tool = DelegateTool(inner.coordinator, {"max_concurrent": 1})
        answers = await asyncio.gather(*(tool.execute({"agent": "finder", "instruction": str(n)}) for n in range(3)))
        return {"output": [answer.output["response"] for answer in answers]}

    desk.serve(spawn)

    async with asyncio.timeout(5):
        result = await desk.delegate()

    assert result.output["response"] == ["found it"] * 3
    assert inner.application.most_running == 1
    assert limits.started == 4


async def test_five_delegations_of_one_batch_overlap(desk: Any) -> None:
    desk.application.may_end.clear()
    batch = asyncio.gather(*(desk.delegate(str(number)) for number in range(5)))

    assert await wait_for(lambda: desk.application.running == 5)
    desk.application.may_end.set()

    assert all(result.success for result in await batch)
