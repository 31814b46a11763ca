"""Every call that an orchestrator makes to a provider or a tool, seen from outside.

An orchestrator is given providers and tools whose calls pass through layers first: limits are checked, requests and
receipts are stored, a replay answers from a record. It works with any orchestrator, and modules still find the real
objects at the coordinator.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, ModuleCoordinator
from amplifier_core.boundary import settle

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
    """A call on its way to a tool, approved and about to run."""

    name: str
    tool: Any
    tool_call_id: str
    input: dict[str, Any]


ProviderStep = Callable[[ProviderCall], Awaitable[ChatResponse]]
ToolStep = Callable[[ToolCall], Awaitable[Any]]


class CallLayer:
    """Something that stands between an orchestrator and what it calls; as it is, it lets everything pass."""

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        return await proceed(call)

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        return await proceed(call)


class LayeredOrchestrator:
    """An orchestrator whose calls pass through layers, the first one outermost."""

    def __init__(
        self, orchestrator: Any, coordinator: ModuleCoordinator, layers: Sequence[CallLayer], find_call: CallFinder
    ) -> None:
        self._orchestrator, self._coordinator = orchestrator, coordinator
        self._ask = _chained([layer.provider_call for layer in layers], _complete)
        self._run = _chained([layer.tool_call for layer in layers], _execute)
        self._find_call = find_call
        self._takes_coordinator = _accepts(orchestrator.execute, "coordinator")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orchestrator, name)

    async def execute(
        self, prompt: str, context: Any, providers: Mapping[str, Any], tools: Mapping[str, Any], hooks: Any
    ) -> Any:
        extra = {"coordinator": self._coordinator} if self._takes_coordinator else {}
        return await self._orchestrator.execute(
            prompt=prompt,
            context=context,
            providers=_Wrapped(providers, lambda name, provider: _Provider(name, provider, self._ask)),
            tools=_Wrapped(tools, lambda name, tool: _Tool(name, tool, self._run, self._find_call)),
            hooks=hooks,
            **extra,
        )


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


class _Provider:
    """A provider whose `complete` passes through the layers, and which has no other way to be asked."""

    def __init__(self, name: str, provider: Any, ask: ProviderStep) -> None:
        self._name, self._provider, self._ask = name, provider, ask

    def __getattr__(self, name: str) -> Any:
        if name == "stream":  # it would pass the layers by; loops that look for it use `complete` without it
            raise AttributeError(name)
        return getattr(self._provider, name)

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        return await self._ask(ProviderCall(self._name, self._provider, request, options))


class _Tool:
    """A tool whose `execute` passes through the layers."""

    def __init__(self, name: str, tool: Any, run: ToolStep, find_call: CallFinder) -> None:
        self._name, self._tool, self._run, self._find_call = name, tool, run, find_call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def execute(self, input: dict[str, Any]) -> Any:
        return await self._run(ToolCall(self._name, self._tool, self._find_call(self._name, input), input))


async def _complete(call: ProviderCall) -> ChatResponse:
    response: ChatResponse = await settle(call.provider.complete(call.request, **call.options))
    return response


async def _execute(call: ToolCall) -> Any:
    return await settle(call.tool.execute(call.input))


def _chained(layers: Sequence[Callable[..., Any]], last: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
    """Return a function that calls the layers from the outside in, and `last` at the end."""
    step = last
    for layer in reversed(layers):
        step = _around(layer, step)
    return step


def _around(layer: Callable[..., Any], proceed: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    def step(call: Any) -> Awaitable[Any]:
        answer: Awaitable[Any] = layer(call, proceed)
        return answer

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
