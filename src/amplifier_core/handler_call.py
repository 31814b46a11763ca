"""Calling one hook handler: its context variables, its errors and its mistakes stay its own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from inspect import CO_COROUTINE
from types import CoroutineType, FunctionType, MethodType, coroutine
from typing import Any, Protocol

from .boundary import cancellations_met, is_cancelled
from .events import EventData
from .models import ContextInjection, HookResult, is_plain_data

logger = logging.getLogger(__name__)

Handler = Callable[[str, EventData], Any]

_ONLY_ACTION = frozenset({"action"})
_OTHER_DATA = frozenset({"action", "data"})


class Registration(Protocol):
    """A handler, the name it goes by, and whether calling it runs nothing yet."""

    handler: Handler
    name: str
    is_coroutine_function: bool


def is_coroutine_function(handler: Handler) -> bool:
    """True if a handler is written as `async def`, so that calling it only makes a coroutine."""
    function = handler.__func__ if type(handler) is MethodType else handler
    return type(function) is FunctionType and bool(function.__code__.co_flags & CO_COROUTINE)


def ask(registration: Registration, event: str, data: Any) -> "HookResult | SuspendedHandler | None":
    """Call a handler with its own shallow copy of `data`.

    Returns its answer, None when it has nothing to say or failed, or the handler itself when it has to wait for
    something. Most never wait, and a task for each would cost ten times as much as the rest of an emit.
    """
    context = copy_context()
    try:
        given = data.copy() if type(data) is dict else {**data} if isinstance(data, dict) else data
        handler = registration.handler
        answer = handler(event, given) if registration.is_coroutine_function else context.run(handler, event, given)
        if type(answer) is CoroutineType or (type(answer) is not HookResult and isinstance(answer, Coroutine)):
            try:
                waiting_for = context.run(answer.send, None)
            except StopIteration as done:
                answer = done.value
            else:
                return SuspendedHandler(registration.name, event, context, answer, waiting_for)
    except KeyboardInterrupt:
        raise
    except BaseException:  # plug-in boundary: one broken hook must not end the turn
        logger.exception("hook %r failed on %r; its answer is skipped", registration.name, event)
        return None
    if type(answer) is HookResult and answer.action == "continue" and answer.__pydantic_fields_set__ <= _ONLY_ACTION:
        return None  # here once more, because nearly all answers are like this
    return _verdict(answer, registration.name, event)


class SuspendedHandler:
    """A handler that waits for something, to be driven to its end in its own context."""

    __slots__ = ("_context", "_coroutine", "_event", "_name", "_waiting_for")

    def __init__(
        self, name: str, event: str, context: Context, handler: Coroutine[Any, Any, Any], waiting_for: Any
    ) -> None:
        self._name, self._event = name, event
        self._context, self._coroutine, self._waiting_for = context, handler, waiting_for

    async def finish(self) -> HookResult | None:
        """Return the answer; of exceptions only what ends the emitting task itself gets out of here."""
        task = asyncio.current_task()
        met = cancellations_met(task)
        try:
            answer = await self._resume()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as exc:
            if isinstance(exc, asyncio.CancelledError) and is_cancelled(task, met):
                raise
            logger.exception("hook %r failed on %r; its answer is skipped", self._name, self._event)
            answer = None
        if is_cancelled(task, met):  # whatever the handler made of it
            raise asyncio.CancelledError
        return _verdict(answer, self._name, self._event)

    @coroutine
    def _resume(self) -> Generator[Any, Any, Any]:
        waiting_for = self._waiting_for
        while True:
            step: Callable[[Any], Any] = self._coroutine.send
            argument = None
            try:
                argument = yield waiting_for
            except GeneratorExit:
                self._context.run(self._coroutine.close)
                raise
            except BaseException as exc:  # noqa: BLE001 - thrown on into the handler
                step, argument = self._coroutine.throw, exc
            try:
                waiting_for = self._context.run(step, argument)
            except StopIteration as done:
                return done.value


def _verdict(answer: Any, name: str, event: str) -> HookResult | None:
    """Return a handler's answer as a valid result, None for a plain `continue`.

    What cannot be understood counts as a denial.
    """
    if answer is None or (
        type(answer) is HookResult and answer.action == "continue" and answer.__pydantic_fields_set__ <= _ONLY_ACTION
    ):
        return None
    try:
        if isinstance(answer, HookResult):
            _check_fields(answer)
            checked: HookResult = answer
            return checked
        if isinstance(answer, dict):
            return HookResult.model_validate(answer)
        if hasattr(answer, "model_dump"):
            return HookResult.model_validate(answer.model_dump())
    except Exception:
        logger.exception("hook %r answered %r with an invalid result; it counts as deny", name, event)
    else:
        logger.error("hook %r answered %r with a %s; it counts as deny", name, event, type(answer).__name__)
    return HookResult(action="deny", reason="Hook handler returned invalid response")


def _check_fields(result: HookResult) -> None:
    """Raise if a field holds a value of the wrong type: pydantic does not look at what is assigned."""
    if _is_other_data(result):
        return
    HookResult.model_validate(vars(result), strict=True)
    for item in result.context_injections:
        ContextInjection.model_validate(vars(item), strict=True)


def _is_other_data(result: HookResult) -> bool:
    """True if a result has other data and nothing else: hooks that rewrite events answer every one of them so."""
    if type(result) is not HookResult or result.__pydantic_fields_set__ != _OTHER_DATA or result.action != "modify":
        return False
    return is_plain_data(result.data)
