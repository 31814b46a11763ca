"""Every call that an orchestrator makes to a provider or a tool, seen from outside.

Providers are handed to the orchestrator behind stand-ins, and tools are intercepted where they run. Their calls pass
through layers first: limits are checked, requests and receipts are stored, a replay answers from a record. It works
with any orchestrator, and modules still find the real objects at the coordinator.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, ModuleCoordinator
from amplifier_core.boundary import settle


class StandIn:
    """Has everything that the real object has, its class included; a subclass overrides what is to differ."""

    __slots__ = ("_real",)

    def __init__(self, real: Any) -> None:
        object.__setattr__(self, "_real", real)

    @property  # type: ignore[misc] # asking for the class means that of the real object
    def __class__(self) -> type:
        return type(self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


_in_call: ContextVar[object] = ContextVar("in_tool_call", default=None)
_call_id: ContextVar[str | None] = ContextVar("tool_call_id", default=None)

CallFinder = Callable[[str, dict[str, Any]], str]
"""Returns the id of the tool call that runs now, given the tool's name and its input."""


@dataclass(frozen=True)
class ProviderCall:
    """A request on its way to a provider; `name` is the one it is mounted under."""

    name: str
    provider: Any
    request: ChatRequest
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """A call on its way to a tool, approved and about to run; `run` runs it."""

    name: str
    tool: Any
    tool_call_id: str
    input: dict[str, Any]
    run: Callable[[Any], Awaitable[Any]]


ProviderStep = Callable[[ProviderCall], Awaitable[ChatResponse]]
ToolStep = Callable[[ToolCall], Awaitable[Any]]


class CallLayer:
    """Something that stands between an orchestrator and what it calls; as it is, it lets everything pass."""

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        return await proceed(call)

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        return await proceed(call)


class LayeredOrchestrator(StandIn):
    """An orchestrator whose calls pass through layers, the first one outermost."""

    __slots__ = ("_ask", "_coordinator", "_find_call", "_run", "_takes_coordinator")

    def __init__(
        self, orchestrator: Any, coordinator: ModuleCoordinator, layers: Sequence[CallLayer], find_call: CallFinder
    ) -> None:
        super().__init__(orchestrator)
        own = {
            "_coordinator": coordinator,
            "_ask": _chained(layers, "provider_call", _complete),
            "_run": _chained(layers, "tool_call", _execute),
            "_find_call": find_call,
            "_takes_coordinator": _accepts(orchestrator.execute, "coordinator"),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)
        coordinator.intercept_tools("session-layers", self._see)

    async def execute(
        self, prompt: str, context: Any, providers: Mapping[str, Any], tools: Mapping[str, Any], hooks: Any
    ) -> Any:
        extra = {"coordinator": self._coordinator} if self._takes_coordinator else {}
        return await self._real.execute(
            prompt=prompt, context=context, providers=self._wrapped(providers), tools=tools, hooks=hooks, **extra
        )

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        return partial(self._stream, value) if name == "execute_stream" and callable(value) else value

    def _stream(
        self,
        execute_stream: Callable[..., Any],
        prompt: str,
        context: Any,
        providers: Mapping[str, Any],
        *rest: Any,
        **named: Any,
    ) -> Any:
        """Run a turn as a stream, for callers of the orchestrator itself; its calls pass through the layers, too."""
        return execute_stream(prompt, context, self._wrapped(providers), *rest, **named)

    def _wrapped(self, providers: Mapping[str, Any]) -> Mapping[str, Any]:
        return _Wrapped(providers, lambda name, provider: _Provider(name, provider, self._ask))

    async def _see(self, tool_name: str, tool: Any, tool_input: Any, proceed: Callable[[Any], Awaitable[Any]]) -> Any:
        """Let a tool call pass through the layers; one that a running tool makes is a part of that one's call."""
        if _in_call.get() is self:
            return await proceed(tool_input)
        call_id = self._find_call(tool_name, tool_input)
        token, outer = _in_call.set(self), _call_id.set(call_id)
        try:
            return await self._run(ToolCall(tool_name, tool, call_id, tool_input, proceed))
        finally:
            _in_call.reset(token)
            _call_id.reset(outer)


def running_call_id() -> str | None:
    """Return the id of the tool call that this code runs in."""
    return _call_id.get()


class _Wrapped(Mapping[str, Any]):
    """A live view of mounted objects, each of them wrapped once."""

    def __init__(self, mounted: Mapping[str, Any], wrap: Callable[[str, Any], Any]) -> None:
        self._mounted, self._wrap = mounted, wrap
        self._known: dict[str, tuple[Any, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        real = self._mounted[name]
        known = self._known.get(name)
        if known is None or known[0] is not real:
            known = self._known[name] = (real, self._wrap(name, real))
        return known[1]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._mounted))

    def __len__(self) -> int:
        return len(self._mounted)


class _Provider(StandIn):
    """A provider whose `complete` passes through the layers, and which has no other way to be asked."""

    __slots__ = ("_ask", "_mounted_as")

    def __init__(self, name: str, provider: Any, ask: ProviderStep) -> None:
        super().__init__(provider)
        object.__setattr__(self, "_mounted_as", name)
        object.__setattr__(self, "_ask", ask)

    def __getattr__(self, name: str) -> Any:
        if name == "stream":  # it would pass the layers by; loops that look for it use `complete` without it
            raise AttributeError(name)
        return super().__getattr__(name)

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        response: ChatResponse = await self._ask(ProviderCall(self._mounted_as, self._real, request, options))
        return response


async def _complete(call: ProviderCall) -> ChatResponse:
    response: ChatResponse = await settle(call.provider.complete(call.request, **call.options))
    return response


async def _execute(call: ToolCall) -> Any:
    return await settle(call.run(call.input))


class _Step:
    """A layer, and what is called when it lets a call pass."""

    __slots__ = ("_layer", "_proceed")

    def __init__(self, layer: Callable[..., Awaitable[Any]], proceed: Callable[[Any], Awaitable[Any]]) -> None:
        self._layer, self._proceed = layer, proceed

    def __call__(self, call: Any) -> Awaitable[Any]:
        return self._layer(call, self._proceed)


def _chained(
    layers: Sequence[CallLayer], method: str, last: Callable[[Any], Awaitable[Any]]
) -> Callable[[Any], Awaitable[Any]]:
    """Return a function that calls the layers from the outside in, and `last` at the end.

    Layers that let everything pass are left out.
    """
    step: Callable[[Any], Awaitable[Any]] = last
    for layer in reversed(layers):
        if getattr(type(layer), method) is not getattr(CallLayer, method):
            step = _Step(getattr(layer, method), step)
    return step


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    named = parameters.get(name)
    return (named is not None and named.kind is not named.POSITIONAL_ONLY) or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
