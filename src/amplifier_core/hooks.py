"""The hook registry: who hears an event, in which order, and what their answers add up to."""

import asyncio
import inspect
import itertools
import logging
import sys
from collections.abc import Callable, Coroutine
from operator import attrgetter
from typing import Any

from .boundary import Boundary
from .correlation import INTERIM_EVENTS, REQUEST_EVENTS, REQUEST_ID_FIELD, TERMINAL_EVENTS, resolve_request_id
from .events import EventData
from .handler_call import Handler, SuspendedHandler, ask, is_coroutine_function
from .models import ContextInjection, HookResult, continuing
from .mounting import current_mounting
from .utils.timestamps import utc_timestamp

__all__ = ["ContextInjection", "HookRegistry", "HookResult"]

logger = logging.getLogger(__name__)

_CORRELATED_EVENTS = REQUEST_EVENTS | TERMINAL_EVENTS | INTERIM_EVENTS
# Values of these types are never models; asking them for `model_dump` would cost more than the rest of an emit.
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None), dict, list, tuple})


Originals = dict[str, tuple[Any, Any]]
"""By their keys, the models of a payload, each with its dump."""

_priority = attrgetter("priority")


class _Registration:
    """One handler on one event. Calling it undoes it."""

    __slots__ = ("event", "handler", "is_coroutine_function", "name", "priority", "registry")

    def __init__(self, registry: "HookRegistry", event: str, handler: Handler, name: str, priority: int) -> None:
        self.registry, self.event, self.handler, self.name, self.priority = registry, event, handler, name, priority
        self.is_coroutine_function = is_coroutine_function(handler)

    def undo(self) -> None:
        self.registry._remove(self)

    __call__ = undo

    def is_in_place(self) -> bool:
        return self.registry._has(self)


_Registrations = dict[_Registration, None]
"""In the order in which they were made."""


class HookRegistry:
    """Handlers by event, called in ascending priority, ties in order of registration."""

    SESSION_START = "session:start"
    SESSION_END = "session:end"
    PROMPT_SUBMIT = "prompt:submit"
    TOOL_PRE = "tool:pre"
    TOOL_POST = "tool:post"
    CONTEXT_PRE_COMPACT = "context:pre_compact"
    ORCHESTRATOR_COMPLETE = "orchestrator:complete"
    USER_NOTIFICATION = "user:notification"

    def __init__(self) -> None:
        self._by_event: dict[str, _Registrations] = {}
        self._by_name: dict[str, _Registrations] = {}
        self._in_order: dict[str, tuple[_Registration, ...]] = {}  # by event; filled by `_listeners`
        self._numbers = itertools.count()
        self._defaults: EventData = {}

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        """Call `handler(event, data)` whenever `event` is emitted; returns a function that undoes exactly this.

        Lower priorities are called first. A name may be used any number of times.
        """
        if not isinstance(event, str):
            raise TypeError(f"event must be a str, got {type(event).__name__}")
        if not isinstance(priority, int):
            raise TypeError(f"priority must be an int, got {type(priority).__name__}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a str, got {type(name).__name__}")
        name = self._unused_name() if name is None else name
        registration = _Registration(self, event, handler, name, priority)
        self._by_event.setdefault(event, {})[registration] = None
        self._by_name.setdefault(name, {})[registration] = None
        self._in_order.pop(event, None)
        if mounting := current_mounting():
            mounting.note_handler(registration, registration.is_in_place)
        return registration

    on = register

    def unregister(self, name: str) -> None:
        """Remove the handler most recently registered under `name`, if there is one."""
        if name in self._by_name:
            self._remove(next(reversed(self._by_name[name])))

    def has_handlers(self, event: str) -> bool:
        """True if anyone listens, so that an emitter need not build what no one reads."""
        return bool(self._by_event.get(event))

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        """Return handler names in calling order: for one event, or for every event ever registered."""
        if event is not None:
            return {event: [registration.name for registration in self._listeners(event)]}
        return {event: [registration.name for registration in self._listeners(event)] for event in self._by_event}

    def registered_handlers(self) -> dict[str, Handler]:
        """Return every handler by its name."""
        return {one.name: one.handler for event in self._by_event for one in self._listeners(event)}

    def set_default_fields(self, **fields: object) -> None:
        """Replace the fields that every emitted payload carries unless the emitter sets them itself."""
        self._defaults = fields

    def emit(self, event: str, data: EventData) -> Coroutine[object, None, HookResult]:
        """Offer `event` to its handlers, lowest priority first, and return their joint answer.

        `deny` ends the round at once; `modify` rewrites what later handlers see. Among the rest, the first `ask_user`
        outranks all injections, which are merged; otherwise the answer is `continue`. What was modified is in its data.

        The payload is passed on by reference, a shallow copy for each handler. A handler that raises is logged and
        skipped; one that returns nonsense counts as a denial.
        """
        if not isinstance(event, str):
            raise TypeError(f"event must be a str, got {type(event).__name__}")
        if type(data) is not dict:
            data = _payload(data)
        stamp = {}
        if event in _CORRELATED_EVENTS:  # here, not in the coroutine: the slot belongs to the emitter's own context
            explicit = data.get(REQUEST_ID_FIELD) if isinstance(data, dict) else None
            if request_id := resolve_request_id(event, explicit):
                stamp = {REQUEST_ID_FIELD: request_id}
        registrations = self._listeners(event)  # what happens to the registry later does not change it
        return self._offer(registrations, event, data, stamp) if registrations else _unheard(data, stamp)

    if sys.version_info >= (3, 12):
        emit = inspect.markcoroutinefunction(emit)
    else:  # the mark that `asyncio.iscoroutinefunction` and `unittest.mock` look for
        emit._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]

    async def emit_and_collect(
        self,
        event: str,
        data: EventData,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - the contract's parameter
    ) -> list[EventData]:
        """Ask every handler in turn, each for `timeout` seconds at most, and return the data they answered with."""
        given, _ = _for_handlers(_payload(data))
        collected = []
        for registration in self._listeners(event):
            try:
                async with asyncio.timeout(timeout):
                    answer = ask(registration, event, given)
                    if isinstance(answer, SuspendedHandler):
                        answer = await answer.finish()
            except TimeoutError:
                logger.warning(
                    "hook %r did not answer %r within %s s and is skipped", registration.name, event, timeout
                )
                continue
            if answer is not None and answer.data is not None:
                collected.append(answer.data)
        return collected

    async def _offer(
        self, registrations: tuple[_Registration, ...], event: str, data: Any, stamp: dict[str, str]
    ) -> HookResult:
        if isinstance(data, dict):
            data = {**self._defaults, **data, "timestamp": utc_timestamp(), **stamp}
        given, originals = _for_handlers(data)
        data = given
        question: HookResult | None = None
        injections: list[tuple[_Registration, HookResult]] = []
        for registration in registrations:
            answer = ask(registration, event, data)
            if answer is not None and isinstance(answer, SuspendedHandler):
                answer = await answer.finish()
            if answer is None:
                continue
            if answer.action == "deny":
                return answer
            if answer.action == "modify" and answer.data is not None:
                data = _keep_unchanged(answer.data, data)
            elif answer.action == "ask_user":
                question = question or answer
            elif answer.action == "inject_context" and injected_items(answer):
                injections.append((registration, answer))
        final = _with_originals(data, given, originals) if originals else data
        if question or injections:
            answer = question or _merge(injections, event)
            return answer if data is given else answer.model_copy(update={"data": final})
        return _continuing(final)

    def _listeners(self, event: str) -> tuple[_Registration, ...]:
        """Return who hears `event`, in calling order, which is worked out when it is first needed after a change."""
        in_order = self._in_order.get(event)
        if in_order is None and event in self._by_event:
            in_order = self._in_order[event] = tuple(sorted(self._by_event[event], key=_priority))
        return in_order or ()

    def _unused_name(self) -> str:
        name = f"handler-{next(self._numbers)}"
        while name in self._by_name:
            name += "'"
        return name

    def _has(self, registration: _Registration) -> bool:
        return registration in self._by_event.get(registration.event, ())

    def _remove(self, registration: _Registration) -> None:
        if self._has(registration):
            event, name = registration.event, registration.name
            del self._by_event[event][registration], self._by_name[name][registration]
            self._in_order.pop(event, None)
            if not self._by_name[name]:
                del self._by_name[name]


async def _unheard(data: object, stamp: dict[str, str]) -> HookResult:
    return _continuing({**data, **stamp} if isinstance(data, dict) else data)


def _continuing(data: object) -> HookResult:
    """Return a `continue` that carries `data` itself, neither copied nor validated."""
    return continuing(data if isinstance(data, dict) else {})


def _payload(data: Any) -> Any:
    """Return the fields of a payload that is one model; any other payload as it is."""
    return _dumped(data) if type(data) not in _PLAIN_TYPES and hasattr(data, "model_dump") else data


def _for_handlers(data: EventData) -> tuple[EventData, Originals]:
    """Return `data` with its top-level models dumped, and for each of those the original and its dump."""
    originals: Originals = {}
    if not isinstance(data, dict) or _PLAIN_TYPES.issuperset(map(type, data.values())):
        return data, originals
    for key, value in data.items():
        if type(value) not in _PLAIN_TYPES and hasattr(value, "model_dump"):
            dumped = _dumped(value)
            if dumped is not value:
                originals[key] = (value, dumped)
    if originals:
        data = {**data, **{key: dumped for key, (_, dumped) in originals.items()}}
    return data, originals


def _with_originals(data: EventData, given: EventData, originals: Originals) -> EventData:
    """Put the models back in place of their dumps; where a handler changed the dump itself, that is the answer."""
    for key, (original, dumped) in originals.items():
        if key in data and data[key] is dumped and (data is given or _same(dumped, _dumped(original))):
            data[key] = original
    return data


def _dumped(model: Any) -> Any:
    for options in ({"mode": "json"}, {}):
        with Boundary(logger, "%s.model_dump(%s) failed: %s", type(model).__name__, options, level=logging.DEBUG):
            return model.model_dump(**options)
    return model


def _keep_unchanged(answered: EventData, given: object) -> EventData:
    """Return a handler's data with equal values replaced by the very objects it was given.

    Emitters recognise a changed value by identity, and a handler may have copied what it left alone.
    """
    if not isinstance(given, dict):
        return {**answered}
    kept = {**answered}
    for key, value in answered.items():
        if key in given and value is not (before := given[key]) and _same(value, before):
            kept[key] = before
    return kept


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    with Boundary(logger, "values of type %s cannot be compared: %s", type(one).__name__, level=logging.DEBUG):
        return bool(one == other)
    return False


def _merge(injections: list[tuple[_Registration, HookResult]], event: str) -> HookResult:
    """Return one injection made of all, each item marked with the handler it came from."""
    items = [
        item.model_copy(update={"hook_name": registration.name, "event": event})
        for registration, result in injections
        for item in injected_items(result)
    ]
    merged: dict[str, Any] = {
        "context_injections": items,
        "context_injection": "\n\n".join(item.content for item in items),
        "context_injection_role": items[0].role,
        "ephemeral": any(item.ephemeral for item in items),
        "append_to_last_tool_result": any(item.append_to_last_tool_result for item in items),
    }
    first = injections[0][1]
    if len(injections) == 1:
        return first.model_copy(update=merged)
    return HookResult(action="inject_context", suppress_output=first.suppress_output, **merged)


def injected_items(result: HookResult) -> list[ContextInjection]:
    """Return what a result injects: its list, else one item made of its scalar fields."""
    items: list[ContextInjection] = getattr(result, "context_injections", None) or []
    if items or result.context_injection is None:
        return items
    return [
        ContextInjection(
            content=result.context_injection,
            role=result.context_injection_role,
            ephemeral=result.ephemeral,
            append_to_last_tool_result=result.append_to_last_tool_result,
        )
    ]
