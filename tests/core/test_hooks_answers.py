"""What the answers of several handlers add up to."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core.hooks import ContextInjection, HookRegistry, HookResult
from amplifier_core.models import ToolResult

Handler = Callable[[str, dict[str, Any]], Any]


def answering(answer: object, seen: list[Any] | None = None) -> Handler:
    """Return a handler that notes the data it gets in `seen` and gives always the same answer."""

    async def handler(event: str, data: Any) -> object:
        if seen is not None:
            seen.append(data)
        return answer

    return handler


def modifying(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Handler:
    """Return a handler that answers with what `change` makes of its data."""

    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data=change(data))

    return handler


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


async def test_modifications_are_seen_by_later_handlers_and_the_emitter(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("tool:pre", modifying(lambda data: {**data, "n": data["n"] + 1}))
    hooks.register("tool:pre", modifying(lambda data: {**data, "n": data["n"] * 10}))
    hooks.register("tool:pre", answering(None, seen))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert (result.action, result.data["n"], seen[0]["n"]) == ("continue", 20, 20)


async def test_a_modification_replaces_all_of_the_data(hooks: HookRegistry) -> None:
    hooks.set_default_fields(session_id="s-1")
    seen: list[Any] = []
    hooks.register("tool:pre", modifying(lambda data: {}))
    hooks.register("tool:pre", answering(None, seen))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert seen == [{}]
    assert (result.action, result.data) == ("continue", {})


async def test_a_modification_without_data_changes_nothing(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", answering(HookResult(action="modify")))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert (result.action, result.data["n"]) == ("continue", 1)


async def test_remarks_of_a_plain_answer_are_not_carried_over(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", answering(HookResult(reason="because", suppress_output=True, data={"x": 1})))
    hooks.register("tool:pre", answering(HookResult(action="modify", reason="because", data={"n": 2})))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert (result.reason, result.suppress_output, result.data) == (None, False, {"n": 2})


async def test_a_denial_is_returned_as_it_is_and_later_handlers_never_run(hooks: HookRegistry) -> None:
    denial = HookResult(action="deny", reason="read-only", user_message="no")
    later: list[Any] = []
    hooks.register("tool:pre", modifying(lambda data: {"changed": True}))
    hooks.register("tool:pre", answering(denial))
    hooks.register("tool:pre", answering(None, later))

    assert await hooks.emit("tool:pre", {"n": 1}) is denial
    assert (denial.data, later) == (None, [])


async def test_the_first_question_wins_over_later_ones_and_over_injections(hooks: HookRegistry) -> None:
    question = HookResult(action="ask_user", approval_prompt="first?", approval_options=["Allow"], data={"own": 1})
    seen: list[Any] = []
    hooks.register("tool:pre", answering(HookResult(action="inject_context", context_injection="note")))
    hooks.register("tool:pre", answering(question))
    hooks.register("tool:pre", answering(HookResult(action="ask_user", approval_prompt="second?"), seen))
    hooks.register("tool:pre", answering(HookResult(action="inject_context", context_injection="note"), seen))

    assert await hooks.emit("tool:pre", {}) is question
    assert len(seen) == 2
    assert question == HookResult(
        action="ask_user", approval_prompt="first?", approval_options=["Allow"], data={"own": 1}
    )


@pytest.mark.parametrize("answer", ["ask_user", "inject_context"])
async def test_a_question_or_an_injection_carries_what_was_modified(hooks: HookRegistry, answer: Any) -> None:
    hooks.register("tool:pre", answering(HookResult(action="modify", data={"tool_input": {"n": 2}})), priority=1)
    hooks.register("tool:pre", answering(HookResult(action=answer, context_injection="note")), priority=2)
    hooks.register("tool:pre", answering(HookResult(action="modify", data={"tool_input": {"n": 3}})), priority=3)

    result = await hooks.emit("tool:pre", {"tool_input": {"n": 1}})

    assert (result.action, result.data) == (answer, {"tool_input": {"n": 3}})


async def test_a_later_denial_beats_questions_and_injections(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", answering(HookResult(action="ask_user")))
    hooks.register("tool:pre", answering(HookResult(action="inject_context", context_injection="note")))
    hooks.register("tool:pre", answering(HookResult(action="deny", reason="no")))

    assert await hooks.emit("tool:pre", {}) == HookResult(action="deny", reason="no")


async def test_a_single_injection_keeps_its_other_fields_and_gets_its_provenance(hooks: HookRegistry) -> None:
    answer = HookResult(
        action="inject_context",
        context_injection="note",
        context_injection_role="user",
        append_to_last_tool_result=True,
        suppress_output=True,
        data={"own": 1},
        reason="because",
        user_message="shown",
        user_message_level="warning",
        approval_prompt="kept",
    )
    hooks.register("tool:post", answering(answer), name="notes")

    result = await hooks.emit("tool:post", {})

    item = ContextInjection(
        content="note", role="user", append_to_last_tool_result=True, hook_name="notes", event="tool:post"
    )
    assert result == answer.model_copy(update={"context_injections": [item]})
    assert answer.context_injections == []


async def test_injections_are_merged_in_calling_order_with_their_provenance(hooks: HookRegistry) -> None:
    several = HookResult(
        action="inject_context",
        context_injection="ignored: the list counts",
        context_injections=[
            ContextInjection(content="b1", role="user", hook_name="impostor", event="forged"),
            ContextInjection(content="", ephemeral=True),
        ],
        data={"lost": 1},
        reason="lost",
    )
    one = HookResult(
        action="inject_context",
        context_injection="a",
        context_injection_role="assistant",
        suppress_output=True,
        user_message="lost",
    )
    hooks.register("tool:post", answering(several), priority=2, name="several")
    hooks.register("tool:post", answering(one), priority=1, name="one")

    result = await hooks.emit("tool:post", {"n": 1})

    assert result == HookResult(
        action="inject_context",
        context_injections=[
            ContextInjection(content="a", role="assistant", hook_name="one", event="tool:post"),
            ContextInjection(content="b1", role="user", hook_name="several", event="tool:post"),
            ContextInjection(content="", ephemeral=True, hook_name="several", event="tool:post"),
        ],
        context_injection="a\n\nb1\n\n",
        context_injection_role="assistant",
        ephemeral=True,
        suppress_output=True,
    )
    assert several.context_injections[0].hook_name == "impostor"


async def test_suppression_of_a_merged_injection_is_that_of_the_first(hooks: HookRegistry) -> None:
    hooks.register("tool:post", answering({"action": "inject_context", "context_injection": "a"}))
    hooks.register(
        "tool:post",
        answering(
            {
                "action": "inject_context",
                "context_injection": "b",
                "suppress_output": True,
                "append_to_last_tool_result": True,
            }
        ),
    )

    result = await hooks.emit("tool:post", {})

    assert (result.suppress_output, result.append_to_last_tool_result, result.ephemeral) == (False, True, False)


async def test_an_empty_text_is_an_injection_but_none_is_not(hooks: HookRegistry) -> None:
    hooks.register("tool:post", answering(HookResult(action="inject_context", reason="nothing to say")))
    assert (await hooks.emit("tool:post", {})).action == "continue"

    hooks.register("tool:post", answering(HookResult(action="inject_context", context_injection="", reason="kept")))
    result = await hooks.emit("tool:post", {})

    assert (result.action, result.context_injection, result.reason) == ("inject_context", "", "kept")
    assert [item.content for item in result.context_injections] == [""]


class Dumpable:
    """Not a hook result, but something that turns into one."""

    def __init__(self, dump: Any) -> None:
        self.dump = dump

    def model_dump(self) -> Any:
        if isinstance(self.dump, Exception):
            raise self.dump
        return self.dump


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (None, "continue"),
        ({}, "continue"),
        ({"no such field": 1, "reason": "none"}, "continue"),
        ({"action": "deny", "reason": "no", "no such field": 1}, "deny"),
        ({"action": "ask_user", "approval_prompt": "sure?"}, "ask_user"),
        ({"action": "inject_context", "context_injections": [{"content": "note"}]}, "inject_context"),
        (Dumpable({}), "continue"),
        (Dumpable({"action": "deny", "reason": "no"}), "deny"),
        (ToolResult(output="no field of a hook result"), "continue"),
    ],
    ids=["None", "empty dict", "other keys", "deny", "ask", "inject", "dumpable", "dumpable deny", "other model"],
)
async def test_an_answer_may_be_nothing_a_dict_or_an_object_that_dumps_itself(
    hooks: HookRegistry, answer: Any, action: str
) -> None:
    hooks.register("tool:pre", answering(answer))

    assert (await hooks.emit("tool:pre", {})).action == action


async def test_an_answer_of_a_derived_class_stays_the_object_it_is(hooks: HookRegistry) -> None:
    class Verdict(HookResult):
        rule: str = "R1"

    verdict = Verdict(action="deny", reason="no")
    hooks.register("tool:pre", answering(verdict))

    assert await hooks.emit("tool:pre", {}) is verdict


async def test_a_dict_can_modify(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", answering({"action": "modify", "data": {"n": 2}}))

    assert (await hooks.emit("tool:pre", {"n": 1})).data == {"n": 2}


def assigned(action: str = "continue", **fields: Any) -> HookResult:
    """Return a result whose fields were set after construction, where nothing checks them."""
    result = HookResult(action="inject_context", context_injection="note")
    result.action = action  # type: ignore[assignment]
    for name, value in fields.items():
        setattr(result, name, value)
    return result


def only_action(action: Any) -> HookResult:
    result = HookResult()
    result.action = action
    return result


def with_item(**fields: Any) -> HookResult:
    result = HookResult(action="inject_context", context_injections=[ContextInjection(content="note")])
    for name, value in fields.items():
        setattr(result.context_injections[0], name, value)
    return result


async def unfinished() -> Any:
    yield "an async generator"


INVALID: dict[str, Callable[[], Any]] = {
    "a number": lambda: 42,
    "a word": lambda: "deny",
    "true": lambda: True,
    "a list": lambda: [],
    "an object": object,
    "the class itself": lambda: HookResult,
    "a future": lambda: asyncio.get_running_loop().create_future(),
    "a finished future": lambda: finished(HookResult()),
    "a task": lambda: asyncio.create_task(asyncio.sleep(0)),
    "an async generator": unfinished,
    "a dict with an unknown action": lambda: {"action": "explode"},
    "a dict without an action to speak of": lambda: {"action": None},
    "a dict with a reason of the wrong type": lambda: {"reason": 5},
    "a dict with data of the wrong type": lambda: {"action": "modify", "data": [1]},
    "a dict with an incomplete injection": lambda: {"action": "inject_context", "context_injections": [{}]},
    "a dump with an unknown action": lambda: Dumpable({"action": "explode"}),
    "a dump with a field of the wrong type": lambda: Dumpable({"action": "ask_user", "approval_options": "Allow"}),
    "a dump that is no dict": lambda: Dumpable(["deny"]),
    "a dump that fails": lambda: Dumpable(RuntimeError("not today")),
    "an unknown action assigned": lambda: assigned(action="explode"),
    "no action assigned": lambda: assigned(action=None),
    "nothing but an unknown action assigned": lambda: only_action("explode"),
    "data of the wrong type assigned": lambda: assigned("modify", data=[1]),
    "data of the wrong type assigned to a continue": lambda: assigned("continue", data=5),
    "options of the wrong type assigned": lambda: assigned("ask_user", approval_options="Allow"),
    "a time-out of the wrong type assigned": lambda: assigned("ask_user", approval_timeout="300"),
    "a text of the wrong type assigned": lambda: assigned("inject_context", context_injection=5),
    "an unknown role assigned": lambda: assigned("inject_context", context_injection_role="tool"),
    "items of the wrong type assigned": lambda: assigned("inject_context", context_injections=[{"content": "note"}]),
    "no items assigned": lambda: assigned("inject_context", context_injections=None),
    "an item's content of the wrong type assigned": lambda: with_item(content=5),
    "an unknown role assigned to an item": lambda: with_item(role="tool"),
    "an item's flag of the wrong type assigned": lambda: with_item(ephemeral="yes"),
}


def finished(result: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


@pytest.mark.parametrize("make", INVALID.values(), ids=INVALID.keys())
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_an_answer_that_cannot_be_understood_counts_as_a_denial(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, make: Callable[[], Any], is_async: bool
) -> None:
    def answer(event: str, data: Any) -> Any:
        return make()

    async def answer_later(event: str, data: Any) -> Any:
        await asyncio.sleep(0)
        return make()

    later: list[Any] = []
    hooks.register("tool:pre", answer_later if is_async else answer, name="careless")
    hooks.register("tool:pre", answering(None, later))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert result == HookResult(action="deny", reason="Hook handler returned invalid response")
    assert later == []
    [record] = [record for record in caplog.records if record.name.startswith("amplifier_core.")]
    assert record.levelname == "ERROR"
    assert "careless" in record.getMessage()
    assert "tool:pre" in record.getMessage()
