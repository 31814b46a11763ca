"""Who hears an event and in which order: registration, names, priorities, and what can be a handler."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

import amplifier_core
from amplifier_core import hooks as hooks_module
from amplifier_core import models
from amplifier_core.hooks import ContextInjection, HookRegistry, HookResult

Handler = Callable[[str, dict[str, Any]], Any]


def answering(answer: object, seen: list[Any] | None = None) -> Handler:
    """Return a handler that notes the data it gets in `seen` and gives always the same answer."""

    async def handler(event: str, data: Any) -> object:
        if seen is not None:
            seen.append(data)
        return answer

    return handler


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


@pytest.mark.parametrize(
    ("constant", "event"),
    [
        ("SESSION_START", "session:start"),
        ("SESSION_END", "session:end"),
        ("PROMPT_SUBMIT", "prompt:submit"),
        ("TOOL_PRE", "tool:pre"),
        ("TOOL_POST", "tool:post"),
        ("CONTEXT_PRE_COMPACT", "context:pre_compact"),
        ("ORCHESTRATOR_COMPLETE", "orchestrator:complete"),
        ("USER_NOTIFICATION", "user:notification"),
    ],
)
def test_the_class_carries_the_names_of_common_events(constant: str, event: str) -> None:
    assert getattr(HookRegistry, constant) == event


def test_hook_names_are_the_same_objects_wherever_they_are_imported_from() -> None:
    assert sorted(hooks_module.__all__) == ["ContextInjection", "HookRegistry", "HookResult"]
    assert amplifier_core.HookRegistry is HookRegistry
    assert amplifier_core.HookResult is models.HookResult is HookResult
    assert amplifier_core.ContextInjection is models.ContextInjection is ContextInjection


def test_a_registry_is_truthy_even_when_empty(hooks: HookRegistry) -> None:
    assert hooks


async def test_handlers_are_called_by_ascending_priority_and_ties_in_order_of_registration(hooks: HookRegistry) -> None:
    order: list[str] = []
    for name, arguments in [
        ("log", {"priority": 100}),
        ("first tie", {"priority": 1}),
        ("approval", {"priority": -10}),
        ("default", {}),
        ("second tie", {"priority": 1}),
        ("zero", {"priority": 0}),
    ]:
        hooks.register("tool:pre", lambda event, data, name=name: order.append(name), name=name, **arguments)

    await hooks.emit("tool:pre", {})

    assert order == ["approval", "default", "zero", "first tie", "second tie", "log"]
    assert hooks.list_handlers("tool:pre") == {"tool:pre": order}


@pytest.mark.parametrize(
    "arguments",
    [
        {"event": None},
        {"event": 5},
        {"event": b"tool:pre"},
        {"priority": "5"},
        {"priority": 1.5},
        {"priority": None},
        {"name": 5},
        {"name": b"guard"},
    ],
    ids=repr,
)
def test_an_argument_of_the_wrong_type_is_refused_and_nothing_is_registered(
    hooks: HookRegistry, arguments: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        hooks.register(**{"event": "tool:pre", "handler": answering(None), **arguments})

    assert hooks.list_handlers() == {}


async def test_a_handler_is_not_checked_when_it_registers_but_fails_alone(hooks: HookRegistry) -> None:
    heard: list[Any] = []
    hooks.register("tool:pre", None)  # type: ignore[arg-type]
    hooks.register("tool:pre", answering(None, heard))

    assert (await hooks.emit("tool:pre", {})).action == "continue"
    assert len(heard) == 1


async def test_on_is_another_name_for_register(hooks: HookRegistry) -> None:
    remove = hooks.on("tool:pre", answering({"action": "deny"}), priority=3, name="guard")

    assert inspect.signature(HookRegistry.on) == inspect.signature(HookRegistry.register)
    assert (await hooks.emit("tool:pre", {})).action == "deny"
    remove()
    assert hooks.list_handlers("tool:pre") == {"tool:pre": []}


def test_handlers_without_a_name_get_unique_ones(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", answering(None))
    [generated] = hooks.list_handlers("tool:pre")["tool:pre"]
    other = HookRegistry()
    other.register("tool:pre", answering(None), name=generated)
    for event in ("tool:pre", "tool:pre", "tool:post"):
        other.register(event, answering(None), name=None)

    names = [name for names in other.list_handlers().values() for name in names]

    assert len(set(names)) == 4
    assert all(names)


async def test_the_returned_function_removes_its_own_registration_only(hooks: HookRegistry) -> None:
    first, second = list[Any](), list[Any]()
    remove_first = hooks.register("tool:pre", answering(None, first), name="same")
    hooks.register("tool:pre", answering(None, second), name="same")

    assert remove_first() is None
    assert remove_first() is None
    await hooks.emit("tool:pre", {})

    assert (len(first), len(second)) == (0, 1)
    hooks.register("tool:pre", answering(None, first), name="same")
    remove_first()
    assert hooks.list_handlers("tool:pre") == {"tool:pre": ["same", "same"]}


def test_unregistering_by_name_removes_the_latest_registration_whatever_its_event_or_priority(
    hooks: HookRegistry,
) -> None:
    hooks.register("tool:pre", answering(None), priority=9, name="same")
    remove_second = hooks.register("tool:post", answering(None), priority=5, name="same")
    hooks.register("tool:pre", answering(None), priority=1, name="same")
    hooks.register("tool:error", answering(None), priority=3, name="same")

    hooks.unregister("same")
    assert hooks.list_handlers() == {"tool:pre": ["same", "same"], "tool:post": ["same"], "tool:error": []}
    remove_second()
    hooks.unregister("same")
    assert hooks.list_handlers() == {"tool:pre": ["same"], "tool:post": [], "tool:error": []}
    hooks.unregister("same")
    hooks.unregister("same")
    hooks.unregister("never seen")
    assert not hooks.has_handlers("tool:pre")


async def test_an_asterisk_is_a_name_like_any_other(hooks: HookRegistry) -> None:
    heard: list[Any] = []
    for pattern in ("*", "tool:*"):
        hooks.register(pattern, answering(None, heard))

    await hooks.emit("tool:pre", {})
    assert heard == []
    await hooks.emit("tool:*", {})
    assert len(heard) == 1


def test_has_handlers_speaks_of_live_handlers_of_exactly_that_event(hooks: HookRegistry) -> None:
    assert hooks.has_handlers("tool:pre") is False
    remove = hooks.register("tool:pre", answering(None))
    assert hooks.has_handlers("tool:pre") is True
    assert hooks.has_handlers("tool:post") is False
    remove()
    assert hooks.has_handlers("tool:pre") is False


def test_listing_knows_every_event_ever_registered(hooks: HookRegistry) -> None:
    assert hooks.list_handlers() == {}
    assert hooks.list_handlers("tool:pre") == {"tool:pre": []}
    remove = hooks.register("tool:pre", answering(None), name="guard")
    hooks.register("", answering(None), name="nameless event")
    remove()

    assert hooks.list_handlers() == {"tool:pre": [], "": ["nameless event"]}
    assert hooks.list_handlers("") == {"": ["nameless event"]}
    hooks.list_handlers("")[""].clear()
    assert hooks.has_handlers("")


class Observer:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def note(self, event: str, data: Any) -> None:
        self.heard.append((event, data["n"]))

    async def note_later(self, event: str, data: Any) -> None:
        await asyncio.sleep(0)
        self.note(event, data)

    def note_with(self, prefix: str, event: str, data: Any) -> None:
        assert prefix == "bound"
        self.note(event, data)

    async def note_later_with(self, prefix: str, event: str, data: Any) -> None:
        self.note_with(prefix, event, data)

    def as_object(self) -> Any:
        observer = self

        class Callable:
            def __call__(self, event: str, data: Any) -> None:
                observer.note(event, data)

        return Callable()

    def as_async_object(self) -> Any:
        observer = self

        class Callable:
            async def __call__(self, event: str, data: Any) -> None:
                await observer.note_later(event, data)

        return Callable()

    def returning_own_coroutine(self, event: str, data: Any) -> Any:
        inner = self.note_later(event, data)

        class Wrapped(Coroutine[Any, Any, Any]):
            """A coroutine that is not made by `async def`, as compiled extensions have them."""

            def send(self, value: Any) -> Any:
                return inner.send(value)

            def throw(self, *error: Any) -> Any:
                return inner.throw(*error)

            def __await__(self) -> Any:
                return inner.__await__()

        return Wrapped()


@pytest.mark.parametrize(
    "make",
    [
        lambda observer: observer.note,
        lambda observer: observer.note_later,
        lambda observer: lambda event, data: observer.note(event, data),
        lambda observer: lambda event, data: observer.note_later(event, data),
        lambda observer: partial(observer.note_with, "bound"),
        lambda observer: partial(observer.note_later_with, "bound"),
        Observer.as_object,
        Observer.as_async_object,
        lambda observer: observer.returning_own_coroutine,
    ],
    ids=[
        "bound method",
        "async bound method",
        "lambda",
        "lambda returning a coroutine",
        "partial",
        "async partial",
        "callable object",
        "async callable object",
        "coroutine of another making",
    ],
)
async def test_anything_that_can_be_called_is_a_handler(
    hooks: HookRegistry, make: Callable[[Observer], Handler]
) -> None:
    observer = Observer()
    hooks.register("tool:pre", make(observer))

    result = await hooks.emit("tool:pre", {"n": 1})

    assert observer.heard == [("tool:pre", 1)]
    assert (result.action, result.data["n"]) == ("continue", 1)


async def test_emitting_gives_a_coroutine_that_can_become_a_task(hooks: HookRegistry) -> None:
    coroutine = hooks.emit("tool:pre", {"n": 1})

    assert inspect.iscoroutine(coroutine)
    assert (await asyncio.create_task(coroutine)).data == {"n": 1}
    assert asyncio.iscoroutinefunction(hooks.emit)
    assert inspect.iscoroutinefunction(hooks.emit_and_collect)


@pytest.mark.parametrize("event", [None, 5, b"tool:pre"])
async def test_an_event_must_be_a_string(hooks: HookRegistry, event: Any) -> None:
    with pytest.raises(TypeError):
        await hooks.emit(event, {})


async def test_handlers_may_emit_themselves(hooks: HookRegistry) -> None:
    async def outer(event: str, data: dict[str, Any]) -> HookResult:
        if data["depth"] == 3:
            return HookResult(action="deny", reason="deep enough")
        inner = await hooks.emit("tool:pre", {"depth": data["depth"] + 1})
        return HookResult(action="modify", data={**data, "inner": inner.reason or inner.data["inner"]})

    hooks.register("tool:pre", outer)

    result = await hooks.emit("tool:pre", {"depth": 0})

    assert (result.action, result.data["depth"], result.data["inner"]) == ("continue", 0, "deep enough")


async def test_changes_to_the_registry_take_effect_with_the_next_emit(hooks: HookRegistry) -> None:
    order: list[str] = []

    def newcomer(event: str, data: Any) -> None:
        order.append("newcomer")

    def changing(event: str, data: Any) -> None:
        order.append("changing")
        remove_changing()
        hooks.unregister("leaving")
        hooks.register("tool:pre", newcomer, priority=7)

    remove_changing = hooks.register("tool:pre", changing)
    hooks.register("tool:pre", lambda event, data: order.append("leaving"), priority=5, name="leaving")

    await hooks.emit("tool:pre", {})
    assert order == ["changing", "leaving"]
    await hooks.emit("tool:pre", {})
    assert order == ["changing", "leaving", "newcomer"]
