"""Whatever handlers are registered, an emit does what a ten-line model of the rules says."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_core.hooks import ContextInjection, HookRegistry, HookResult

EVENT = "tool:pre"
INVALID = HookResult(action="deny", reason="Hook handler returned invalid response")

Data = dict[str, Any]


@dataclass(frozen=True)
class Behaviour:
    """What one handler does: it answers (with anything), or it raises."""

    name: str
    priority: int
    answer: Any
    error: type[BaseException] | None
    style: str

    def handler(self, calls: list[tuple[str, Data]]) -> Callable[[str, Data], Any]:
        def act(event: str, data: Data) -> Any:
            calls.append((self.name, dict(data)))
            data["scribble"] = self.name
            if self.error is not None:
                raise self.error("wrong")
            return self.answer

        async def act_at_once(event: str, data: Data) -> Any:
            return act(event, data)

        async def act_after_a_while(event: str, data: Data) -> Any:
            await asyncio.sleep(0)
            answer = act(event, data)
            await asyncio.sleep(0)
            return answer

        return {"sync": act, "async": act_at_once, "suspending": act_after_a_while}[self.style]


def model(behaviours: list[Behaviour], data: Data) -> tuple[list[tuple[str, Data]], HookResult]:
    """Return who is called with what, and the joint answer."""
    calls, questions, injections = list[tuple[str, Data]](), list[HookResult](), list[tuple[str, HookResult]]()
    given = data
    for one in sorted(behaviours, key=lambda behaviour: behaviour.priority):
        calls.append((one.name, data))
        result = HookResult() if one.error is not None else understood(one.answer)
        if result.action == "deny":
            return calls, result
        data = result.data if result.action == "modify" and result.data is not None else data
        questions += [result] * (result.action == "ask_user")
        injections += [(one.name, result)] * (result.action == "inject_context" and bool(items("", result)))
    verdict = questions[0] if questions else merged(injections) if injections else HookResult(data=data)
    return calls, verdict if data is given else verdict.model_copy(update={"data": data})


def understood(answer: Any) -> HookResult:
    if isinstance(answer, HookResult):
        return answer
    is_valid = isinstance(answer, dict) and answer.get("action") != "explode"
    return HookResult(**answer) if is_valid else HookResult() if answer is None else INVALID


def items(name: str, result: HookResult) -> list[ContextInjection]:
    if result.context_injections:
        return [item.model_copy(update={"hook_name": name, "event": EVENT}) for item in result.context_injections]
    if result.context_injection is None:
        return []
    role, ephemeral = result.context_injection_role, result.ephemeral
    return [
        ContextInjection(content=result.context_injection, role=role, ephemeral=ephemeral, hook_name=name, event=EVENT)
    ]


def merged(injections: list[tuple[str, HookResult]]) -> HookResult:
    every = [item for name, result in injections for item in items(name, result)]
    first = injections[0][1]
    base = first if len(injections) == 1 else HookResult(suppress_output=first.suppress_output)
    return base.model_copy(
        update={
            "action": "inject_context",
            "context_injections": every,
            "context_injection": "\n\n".join(item.content for item in every),
            "context_injection_role": every[0].role,
            "ephemeral": any(item.ephemeral for item in every),
        }
    )


texts = st.text(max_size=5)
roles = st.sampled_from(["system", "user", "assistant"])
data = st.dictionaries(st.sampled_from("abcd"), st.integers() | texts | st.lists(st.integers(), max_size=2), max_size=3)
injections = st.builds(ContextInjection, content=texts, role=roles, ephemeral=st.booleans(), hook_name=texts)
results = st.builds(
    HookResult,
    action=st.sampled_from(["continue", "modify", "inject_context", "ask_user"]) | st.just("deny"),
    data=st.none() | data,
    reason=st.none() | texts,
    context_injection=st.none() | texts,
    context_injection_role=roles,
    ephemeral=st.booleans(),
    context_injections=st.lists(injections, max_size=2),
    suppress_output=st.booleans(),
    user_message=st.none() | texts,
    approval_prompt=st.none() | texts,
)
answers = st.one_of(
    results,
    results.filter(lambda result: result.action != "deny"),
    st.none(),
    st.fixed_dictionaries({}, optional={"action": st.sampled_from(["modify", "deny", "explode"]), "data": data}),
    st.sampled_from([42, "deny", [], True]),
)
behaviours = st.builds(
    Behaviour,
    name=st.sampled_from(["log", "guard", "notes"]),
    priority=st.integers(-2, 2),
    answer=answers,
    error=st.none() | st.none() | st.sampled_from([ValueError, asyncio.CancelledError, SystemExit]),
    style=st.sampled_from(["sync", "async", "suspending"]),
)


def without_timestamp(values: Data | None) -> Data | None:
    return values and {key: value for key, value in values.items() if key != "timestamp"}


@given(st.lists(behaviours, max_size=6), data)
@example([Behaviour("guard", 0, HookResult(action="modify", data={}), None, "sync")], {"a": 1})
async def test_an_emit_calls_and_answers_as_the_rules_say(handlers: list[Behaviour], payload: Data) -> None:
    hooks, calls = HookRegistry(), list[tuple[str, Data]]()
    for one in handlers:
        hooks.register(EVENT, one.handler(calls), one.priority, one.name)
    before = dict(payload)

    result = await hooks.emit(EVENT, payload)

    expected_calls, expected = model(handlers, payload)
    assert [(name, without_timestamp(seen)) for name, seen in calls] == expected_calls
    assert result.model_copy(update={"data": without_timestamp(result.data)}) == expected
    assert payload == before


@given(st.lists(behaviours, max_size=6), data)
async def test_collecting_asks_everybody_and_keeps_every_answers_data(handlers: list[Behaviour], payload: Data) -> None:
    hooks, calls = HookRegistry(), list[tuple[str, Data]]()
    for one in handlers:
        hooks.register(EVENT, one.handler(calls), one.priority, one.name)

    collected = await hooks.emit_and_collect(EVENT, payload, timeout=60)

    in_order = sorted(handlers, key=lambda behaviour: behaviour.priority)
    answered = [understood(one.answer).data for one in in_order if one.error is None]
    assert calls == [(one.name, payload) for one in in_order]
    assert collected == [values for values in answered if values is not None]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(-2, 2), st.booleans()), max_size=12))
def test_the_order_of_handlers_is_by_priority_then_registration_whatever_was_removed(
    registrations: list[tuple[str, int, bool]],
) -> None:
    hooks, live = HookRegistry(), list[tuple[int, int, str]]()
    removals = []
    for number, (name, priority, is_removed) in enumerate(registrations):
        remove = hooks.register(EVENT, lambda event, data: None, priority, name)
        if is_removed:
            removals.append(remove)
        else:
            live.append((priority, number, name))

    for remove in removals:
        remove()

    assert hooks.list_handlers(EVENT) == {EVENT: [name for _, _, name in sorted(live)]}
    while live:
        *_, name = live[-1]
        live.remove(max((one for one in live if one[2] == name), key=lambda one: one[1]))
        hooks.unregister(name)
        assert hooks.list_handlers(EVENT) == {EVENT: [name for _, _, name in sorted(live)]}
