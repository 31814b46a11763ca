"""What a turn needs around it: a context, a scripted provider, tools, hooks and, if wanted, a coordinator."""

import asyncio
import importlib
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from amplifier_core import ChatResponse, HookRegistry, HookResult, TextBlock, ToolCall, ToolCallBlock, ToolResult, Usage
from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import MockCoordinator, MockProvider

MODULES = Path(__file__).parents[2] / "modules"
OWN_EVENTS = (
    "tool:selecting",
    "tool:selected",
    "error:tool",
    "decision:tool_resolution",
    "orchestrator:steering_injected",
    "orchestrator:rate_limit_delay",
)

Message = dict[str, Any]


def package_of(folder: Path) -> str:
    return f"amplifier_module_{folder.name.replace('-', '_')}"


@cache
def entry_point_of(folder: Path) -> Any:
    """Return what the entry point in a folder's own `pyproject.toml` names."""
    pyproject = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    module_name, _, attribute = pyproject["project"]["entry-points"]["amplifier.modules"][folder.name].partition(":")
    return getattr(importlib.import_module(module_name), attribute)


async def mounted(folder: Path, config: dict[str, Any] | None = None) -> Any:
    """Return the orchestrator that a folder's entry point mounts."""
    coordinator = MockCoordinator()
    await entry_point_of(folder)(coordinator, config)
    return coordinator.get("orchestrator")


class ListContext:
    """Keeps messages in a list; with `pause` every access takes a round of the event loop."""

    def __init__(self, *, pause: bool = False) -> None:
        self.messages: list[Message] = []
        self._pause = pause

    async def add_message(self, message: Message) -> None:
        await self._wait()
        self.messages.append(message)
        await self._wait()

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Message]:
        await self._wait()
        return list(self.messages)

    async def get_messages(self) -> list[Message]:
        return list(self.messages)

    async def set_messages(self, messages: list[Message]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []

    async def _wait(self) -> None:
        if self._pause:
            await asyncio.sleep(0)

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.messages]


class FunctionTool:
    """A tool made of a function, which may be a coroutine function."""

    description = "A tool for tests."

    def __init__(self, name: str, function: Callable[[dict[str, Any]], Any], schema: dict[str, Any] | None = None):
        self.name = name
        self.input_schema = schema or {"type": "object", "properties": {}}
        self.inputs: list[dict[str, Any]] = []
        self._function = function

    async def execute(self, input: dict[str, Any]) -> Any:
        self.inputs.append(dict(input))
        returned = self._function(input)
        return await returned if asyncio.iscoroutine(returned) else returned


def echo(name: str = "echo") -> FunctionTool:
    """Return a tool that answers with its input."""
    return FunctionTool(name, lambda input: ToolResult(output=input))


def answer(text: str = "done", /, **fields: Any) -> ChatResponse:
    usage = Usage(input_tokens=1, output_tokens=2, total_tokens=3)
    return ChatResponse(content=[TextBlock(text=text)], **{"usage": usage, "finish_reason": "stop", **fields})


def calling(*calls: tuple[str, str] | tuple[str, str, dict[str, Any]], text: str = "") -> ChatResponse:
    """Return a response that calls tools, each given as id, name and perhaps arguments."""
    full = [(*call, {})[:3] for call in calls]
    blocks: list[Any] = [TextBlock(text=text)] if text else []
    blocks += [ToolCallBlock(id=call_id, name=name, input=arguments) for call_id, name, arguments in full]
    tool_calls = [ToolCall(id=call_id, name=name, arguments=arguments) for call_id, name, arguments in full]
    return ChatResponse(content=blocks, tool_calls=tool_calls, finish_reason="tool_use")


class Stage:
    """Runs turns of an orchestrator and keeps what can be seen of them.

    `events` holds name and payload of everything emitted, in order, on the kernel's own registry.
    """

    def __init__(
        self,
        responses: Iterable[str | ChatResponse | BaseException] = (),
        tools: Iterable[Any] = (),
        *,
        with_coordinator: bool = True,
        context: Any = None,
        provider: Any = None,
    ) -> None:
        self.coordinator = MockCoordinator() if with_coordinator else None
        self.hooks = self.coordinator.hooks if self.coordinator else HookRegistry()
        self.context = ListContext() if context is None else context
        self.provider = MockProvider(responses) if provider is None else provider
        self.providers: dict[str, Any] = {"mock": self.provider}
        self.tools = {tool.name: tool for tool in tools}
        self.events: list[tuple[str, dict[str, Any]]] = []
        if self.coordinator is not None:
            self.coordinator.mount_points["context"] = self.context

    def record(self, *events: str) -> "Stage":
        """Listen to events, by default to all of them, before any other handler."""

        async def keep(event: str, data: dict[str, Any]) -> HookResult:
            self.events.append((event, dict(data)))
            return HookResult()

        for event in events or (*ALL_EVENTS, *OWN_EVENTS):
            self.hooks.register(event, keep, priority=-1000, name="recorder")
        return self

    def on(self, event: str, respond: Callable[[dict[str, Any]], Any] | HookResult) -> "Stage":
        """Have a hook answer an event: with a result, or with what a function of the data returns."""

        async def handle(_: str, data: dict[str, Any]) -> Any:
            if isinstance(respond, HookResult):
                return respond.model_copy(deep=True)
            returned = respond(data)
            returned = await returned if asyncio.iscoroutine(returned) else returned
            return HookResult() if returned is None else returned

        self.hooks.register(event, handle, name=f"answers {event}")
        return self

    def inputs(self) -> dict[str, Any]:
        """Return the arguments of `execute`, but for the prompt."""
        given = {"context": self.context, "providers": self.providers, "tools": self.tools, "hooks": self.hooks}
        return given if self.coordinator is None else {**given, "coordinator": self.coordinator}

    async def run(self, orchestrator: Any, prompt: str = "Hello") -> str:
        text: str = await orchestrator.execute(prompt=prompt, **self.inputs())
        return text

    @property
    def messages(self) -> list[Message]:
        messages: list[Message] = self.context.messages
        return messages

    @property
    def results(self) -> list[Any]:
        """The contents of the stored tool messages."""
        return [message["content"] for message in self.messages if message["role"] == "tool"]

    @property
    def event_names(self) -> list[str]:
        return [event for event, _ in self.events]

    def payloads(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == event]

    def payload(self, event: str) -> dict[str, Any]:
        """Return the payload of an event that came exactly once."""
        (payload,) = self.payloads(event)
        return payload


def texts_of(request: Any) -> list[str]:
    """Return what a request's messages say."""
    return [
        message.content
        if isinstance(message.content, str)
        else "\n\n".join(getattr(block, "text", "") or "" for block in message.content)
        for message in request.messages
    ]


def orphans(messages: list[Message]) -> Iterator[str]:
    """Yield a sentence for every tool call that is not answered at once, and for every answer without its call."""
    open_calls: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                yield f"message {place} answers {message['tool_call_id']}, which is not open"
            continue
        yield from (f"message {place} comes before the answer to {call_id}" for call_id in open_calls)
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
        content = message["content"] if isinstance(message["content"], list) else []
        blocks = {block["id"] for block in content if block.get("type") == "tool_call"}
        yield from (f"message {place} has a block for the unknown call {call_id}" for call_id in blocks - {*open_calls})
    yield from (f"nothing answers {call_id}" for call_id in open_calls)


def unpaired(events: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Yield a sentence for every event that lacks its counterpart."""
    names = Counter(event for event, _ in events)
    if names["execution:start"] != names["execution:end"] or names["execution:start"] > 1:
        yield f"{names['execution:start']} execution:start, {names['execution:end']} execution:end"
    if names["orchestrator:complete"] != 1:
        yield f"{names['orchestrator:complete']} orchestrator:complete"
    if names["content_block:start"] != names["content_block:end"] and not names["cancel:requested"]:
        yield f"{names['content_block:start']} content_block:start, {names['content_block:end']} content_block:end"
    if names["cancel:requested"] > 1:
        yield f"{names['cancel:requested']} cancel:requested"
    started = {data["tool_call_id"] for event, data in events if event == "tool:pre"}
    for event, data in events:
        if event == "tool:post" and data["tool_call_id"] not in started:
            yield f"tool:post without tool:pre for {data['tool_call_id']}"
