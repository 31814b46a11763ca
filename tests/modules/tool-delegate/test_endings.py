"""How delegations end: one event at the start, one at the end, and what the model reads."""

import asyncio
import json
from typing import Any

import pytest

DISPATCH = {"tool_call_id": None, "parallel_group_id": None}


def identity(desk: Any) -> dict[str, Any]:
    sub_session_id = desk.application.call["sub_session_id"]
    return {"agent": "finder", "sub_session_id": sub_session_id, "parent_session_id": "test-session"}


def told(desk: Any, event: str) -> dict[str, Any]:
    return {key: value for key, value in desk.data(event).items() if key != "session_id"}


async def test_a_delegation_is_announced_and_completed_once(desk: Any) -> None:
    await desk.delegate()

    assert desk.events == ["delegate:agent_spawned", "delegate:agent_completed"]
    assert told(desk, "delegate:agent_spawned") == {
        **identity(desk),
        "context_depth": "recent",
        "context_scope": "conversation",
        **DISPATCH,
        "model_role": None,
        "provider_preferences": None,
    }
    assert told(desk, "delegate:agent_completed") == {**identity(desk), **DISPATCH, "success": True}


async def test_an_error_is_its_only_end(desk: Any, code_of: Any) -> None:
    desk.application.answer = RuntimeError("boom")

    result = await desk.delegate()

    assert code_of(result) == "delegation_failed"
    assert result.error["message"] == "Agent delegation failed (RuntimeError): boom"
    assert desk.events == ["delegate:agent_spawned", "delegate:error"]
    error = told(desk, "delegate:error")
    assert error.pop("elapsed_s") >= 0
    assert error == {
        **identity(desk),
        **DISPATCH,
        "error": "Agent delegation failed (RuntimeError): boom",
        "error_type": "RuntimeError",
        "status": "error",
    }


async def test_a_cancellation_is_its_only_end_and_reaches_the_child(desk: Any) -> None:
    desk.application.may_end.clear()
    delegation = asyncio.create_task(desk.delegate())
    await desk.application.is_running.wait()

    delegation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delegation

    assert desk.events == ["delegate:agent_spawned", "delegate:agent_cancelled"]
    assert desk.application.running == 0


async def test_a_child_that_was_cancelled_says_so(desk: Any) -> None:
    desk.application.answer = {"output": "half", "status": "cancelled"}

    result = await desk.delegate()

    assert (result.success, result.output["status"]) == (True, "cancelled")
    assert desk.events == ["delegate:agent_spawned", "delegate:agent_cancelled"]


async def test_a_time_out_returns_what_was_said_so_far_and_no_response(make_desk: Any, code_of: Any) -> None:
    desk = make_desk(settings={"timeout": 0.01, "partial_max_chars": 4})
    desk.application.may_end.clear()

    async def partial(sub_session_id: str) -> dict[str, Any]:
        assert sub_session_id == desk.application.call["sub_session_id"]
        return {"text": "so far", "segments": 2, "source": "transcript"}

    desk.serve(partial, "session.partial")

    result = await desk.delegate()

    assert code_of(result) == "DELEGATION_TIMEOUT"
    assert result.output == {
        "status": "timeout",
        "completed": False,
        "session_id": desk.application.call["sub_session_id"],
        "partial_available": True,
        "partial_response": " far",
        "partial_segments": 2,
        "partial_source": "transcript",
        "partial_truncated": True,
        "partial_chars_total": 6,
    }
    assert desk.events == ["delegate:agent_spawned", "delegate:error"]
    error = told(desk, "delegate:error")
    assert (error["status"], error["timeout_seconds"], error["partial_chars_total"]) == ("timeout", 0.01, 6)
    assert "partial_response" not in error


async def test_without_the_applications_word_there_is_no_partial_answer(make_desk: Any) -> None:
    desk = make_desk(settings={"timeout": 0.01})
    desk.application.may_end.clear()

    output = (await desk.delegate()).output

    assert (output["partial_available"], output["partial_response"], output["partial_source"]) == (False, "", None)


async def test_a_sibling_of_one_that_times_out_goes_on(make_desk: Any) -> None:
    desk = make_desk(settings={"timeout": 0.2})
    slow, quick = asyncio.Event(), asyncio.Event()
    quick.set()

    async def spawn(**keywords: Any) -> Any:
        await (slow if keywords["instruction"] == "slow" else quick).wait()
        return {"output": "in time"}

    desk.serve(spawn)

    late, early = await asyncio.gather(*(desk.delegate(text, context_depth="none") for text in ("slow", "quick")))

    assert (late.success, early.output["response"]) == (False, "in time")


# Resuming, and the model that works.


async def test_a_resumed_session_is_named_by_its_id(desk: Any) -> None:
    result = await desk.resume("0-1_finder")

    assert desk.resumption.call == {"sub_session_id": "0-1_finder", "instruction": "Go on"}
    assert result.output["agent"] == "finder"
    assert desk.events == ["delegate:agent_resumed", "delegate:agent_completed"]
    resumed = desk.data("delegate:agent_resumed")
    assert (resumed["session_id"], resumed["parent_session_id"]) == ("0-1_finder", "test-session")


async def test_a_session_that_is_gone_is_not_found(desk: Any, code_of: Any) -> None:
    desk.resumption.answer = FileNotFoundError("0-1_finder")

    result = await desk.resume("0-1_finder")

    assert code_of(result) == "not_found"
    assert result.error["message"].startswith("Agent session '0-1_finder' not found")


async def test_a_call_can_give_a_resumed_session_another_model(desk: Any, make_roles: Any) -> None:
    desk.coordinator.register_capability("model_role_resolver", make_roles(fast="small"))

    await desk.resume(model_role="fast")

    call = desk.resumption.call
    assert [preference.to_dict() for preference in call["provider_preferences"]] == [
        {"provider": "mock", "model": "small"}
    ]
    assert call["model_role"] == "fast"


async def test_an_application_that_takes_no_routing_is_asked_without_it_and_a_warning_names_it(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    async def resume(sub_session_id: str, instruction: str) -> dict[str, Any]:
        asked.append((sub_session_id, instruction))
        return {"output": "again"}

    desk.serve(resume, "session.resume")

    result = await desk.resume(provider_preferences=[{"provider": "mock", "model": "big"}])

    assert (result.output["response"], asked) == ("again", [("0-1_finder", "Go on")])
    assert "'model': 'big'" in caplog.text


CHOSEN = [{"provider": "mock", "model": "chosen"}]


@pytest.mark.parametrize(
    ("agent", "given", "model", "role"),
    [
        ("finder", {}, None, None),
        ("anchors:builder", {}, "small", "general"),
        ("anchors:builder", {"model_role": "fast"}, "tiny", "fast"),
        (
            "anchors:builder",
            {"provider_preferences": [{"provider": "x", "model": "y"}], "model_role": "fast"},
            "y",
            None,
        ),
        ("anchors:builder", {"model_role": "unheard-of"}, "small", "general"),
    ],
)
async def test_the_model_is_the_calls_else_the_agents_else_the_parents(
    desk: Any, make_roles: Any, agent: str, given: dict[str, Any], model: str | None, role: str | None
) -> None:
    roles = make_roles(general="small", fast="tiny")
    del roles.known_roles
    desk.coordinator.register_capability("model_role_resolver", roles)

    result = await desk.delegate(agent=agent, **given)

    preferences = desk.application.call["provider_preferences"]
    assert (preferences[0].model if preferences else None) == model
    routing = result.output.get("provider_routing")
    assert routing == (role and {"model_role": role, "resolved": [{"provider": "mock", "model": model}]})


async def test_a_role_that_nothing_serves_is_told_and_fails_a_strict_tool(
    make_desk: Any, code_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lenient, strict = make_desk(), make_desk(settings={"strict_model_role": True})

    assert (await lenient.delegate(model_role="fast")).success
    result = await strict.delegate(model_role="fast")

    assert code_of(result) == "model_role_unresolved"
    assert lenient.events[0] == "delegate:model_role_unresolved"
    assert lenient.data("delegate:model_role_unresolved")["model_role"] == "fast"
    assert "'fast'" in caplog.text


# The return contract.


CONTRACT = {"summary": "Two bugs", "findings": [{"claim": "off by one", "evidence": "a.py:3", "confidence": "high"}]}


@pytest.mark.parametrize(
    ("answer", "response", "contract"),
    [
        (
            f"Found.\n```json\n{json.dumps(CONTRACT)}\n```",
            "Found.",
            {**CONTRACT, "not_covered": [], "artifacts": [], "conformant": True, "reason": None},
        ),
        ("Found.", "Found.", {"conformant": False, "reason": "the answer has no fenced json block"}),
        (
            "```json\n[]\n```",
            "```json\n[]\n```",
            {"conformant": False, "reason": "the json block is not an object"},
        ),
        (
            '```json\n{"findings": ["x"]}\n```',
            '```json\n{"findings": ["x"]}\n```',
            {"conformant": False, "reason": "an item of 'findings' has no 'claim'"},
        ),
    ],
)
async def test_the_last_block_of_json_is_the_contract(
    make_desk: Any, answer: str, response: str, contract: dict[str, Any]
) -> None:
    desk = make_desk(features={"return_contract": {"enabled": True}})
    desk.application.answer = {"output": answer}

    output = (await desk.delegate()).output

    assert "fenced json block" in desk.application.call["instruction"]
    assert (output["response"], output["contract"]) == (response, contract)


async def test_an_agent_can_have_a_contract_of_its_own(desk: Any) -> None:
    desk.coordinator.config["agents"]["finder"] = {"return_contract": {"strip_block": False}}
    text = f"```json\n{json.dumps(CONTRACT)}\n```"
    desk.application.answer = {"output": text}

    output = (await desk.delegate()).output

    assert (output["response"], output["contract"]["conformant"]) == (text, True)
