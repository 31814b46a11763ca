"""The provider itself: one call, from the request to the answer that its settings choose."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, ModelInfo, ProviderInfo, ToolCall
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.mounting import working_dir
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.options import CallOptions, OptionDefaults, read_options
from amplifier_kit.providers.response import ProviderResponse, parse_tool_calls
from amplifier_kit.providers.stream import ProviderEvents, StreamEvents
from amplifier_kit.providers.tool_sequence import ToolSequence

from .agent import agent_entry
from .entries import Entry
from .faults import ErrorSpec, Faults, TurnView
from .recording import Recorder, Replay
from .script import Script
from .settings import MODULE_ID, MockSettings

# The synthetic stream: a known answer is streamed word by word, as a vendor would.


class WaitClock:
    """Waits, and tells the time as the sum of what was waited for, so that two runs tell the same."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    async def wait_ms(self, milliseconds: float) -> None:
        self._now_s += milliseconds / 1000
        if milliseconds > 0:
            await asyncio.sleep(milliseconds / 1000)

    def pace(self, step_ms: float) -> Callable[[], Awaitable[None]]:
        """Return what waits for the end of each step; who is late does not wait, and so keeps the pace of a vendor."""
        loop = asyncio.get_running_loop()
        begun_s, passed_s = loop.time(), 0.0

        async def step() -> None:
            nonlocal passed_s
            self._now_s += step_ms / 1000
            passed_s += step_ms / 1000
            if step_ms > 0:
                await asyncio.sleep(max(0.0, begun_s + passed_s - loop.time()))

        return step


async def stream_content(
    content: list[Any],
    events: ProviderEvents,
    clock: WaitClock,
    *,
    delay_ms: float,
    error: Exception | None = None,
    after_deltas: int = 0,
) -> None:
    """Emit the stream events of a content; an `error` is raised after so many fragments, at the latest at the end."""
    found, wait = 0, clock.pace(delay_ms)
    async with StreamEvents(events) as stream:
        for index, block in enumerate(content):
            match block:
                case ThinkingBlock(thinking=text):
                    await stream.start(index, "thinking")
                case TextBlock(text=text):
                    await stream.start(index, "text")
                case ToolCallBlock(name=name):
                    text = ""
                    await stream.start(index, "tool_use", name=name)
                case _:
                    continue
            for word in text.split():
                if error is not None and found >= after_deltas:
                    raise error
                await stream.delta(index, f"{word} ")
                found += 1
                await wait()
            await stream.end(index)
        if error is not None:
            raise error


# Choosing an answer and giving it: after its latency, with its faults, streamed or at once.


@dataclass(slots=True)
class MockCall:
    """One call: what is asked, how it is to be answered, and the clock that its waiting moves."""

    number: int
    request: ChatRequest
    messages: list[NormalMessage]
    options: CallOptions
    clock: WaitClock = field(default_factory=WaitClock)
    attempts: int = 0
    chosen: Entry | None = None

    @property
    def view(self) -> TurnView:
        return TurnView(self.request, self.messages, self.number)


class Answering:
    """Gives the answers that the settings describe."""

    def __init__(self, settings: MockSettings, script: Script | None, events: ProviderEvents) -> None:
        self._settings = settings
        self._script = script
        self._events = events
        self._faults = Faults(settings.faults)

    async def attempt(self, call: MockCall) -> ProviderResponse:
        """Answer a call, or fail as it is told to.

        The answer is chosen once for a call. Only one that is itself an error is chosen again for the next attempt, so
        that a script goes on.
        """
        settings, view = self._settings, call.view
        attempt, call.attempts = call.attempts, call.attempts + 1
        await call.clock.wait_ms(settings.latency_ms)
        fault = self._faults.next(view, attempt)
        if fault is not None and not fault.after_deltas:
            raise self._error(fault, call)
        entry = call.chosen or await self._choose(view)
        call.chosen = None if entry.error else entry
        await call.clock.wait_ms(entry.latency_ms)
        fault = fault or entry.error
        response = entry.response(settings.seed + call.number, settings.usage.usage(call.request, call.messages, entry))
        if entry.streams and not (fault and not fault.after_deltas):
            await self.stream(response, call, fault)
        if fault is not None:
            raise self._error(fault, call)
        return response

    async def stream(self, response: ProviderResponse, call: MockCall, fault: ErrorSpec | None = None) -> None:
        """Emit a response as a stream, if the call is to be streamed and anyone can hear it."""
        if call.options.streams and self._events.hooks is not None:
            await stream_content(
                response.content,
                self._events,
                call.clock,
                delay_ms=self._settings.stream_delay_ms,
                error=self._error(fault, call) if fault else None,
                after_deltas=(fault.after_deltas or 0) if fault else 0,
            )

    async def _choose(self, view: TurnView) -> Entry:
        """Return a script's answer, else the agent's, the keyword rule's, the echo, the next canned one."""
        settings = self._settings
        entry = await self._script.next(view) if self._script else None
        if entry is None and settings.mode == "agent":
            return agent_entry(view)
        if entry is None and settings.keyword_rule is not None:
            entry = settings.keyword_rule.entry(view)
        if entry is None and settings.mode == "echo":
            return Entry(text=f"{settings.echo_prefix}{view.user_text}")
        return entry or settings.entries[(view.call_number - 1) % len(settings.entries)]

    def _error(self, fault: ErrorSpec, call: MockCall) -> Exception:
        return fault.error(provider="mock", model=call.options.model)


logger = logging.getLogger(__name__)

_CAPABILITIES = ["tools", "testing", "streaming"]
_NO_RETRY = RetryConfig(max_retries=0)


class MockProvider:
    """Answers without a model: canned, echoed, scripted, by rules, from a recording, or by recording another provider.

    Same configuration and same requests, same answers. Raises `ValueError` when `record` lacks its `provider`, or when
    more than one of `record`, `replay` and `script` is set.
    """

    name = "mock"
    is_offline = True  # there is no model behind it that could be asked something beside the conversation

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        coordinator: Any = None,
        *,
        add_cost: Callable[[Decimal | None], None] | None = None,
    ) -> None:
        self._settings = settings = MockSettings.read(config)
        self.coordinator = coordinator
        self.call_count = 0
        self.responses = settings.responses
        self.use_streaming = settings.use_streaming
        self.priority = settings.priority
        self.default_model = settings.model
        self._add_cost = add_cost
        self._events = ProviderEvents(coordinator)
        self._sequence = ToolSequence(self.name, self._events)
        self._answering = Answering(settings, self._read_script(), self._events)
        self._replay = Replay(self._path(settings.replay)) if settings.replay else None
        self._recorder: Recorder | None = None
        if settings.record and settings.provider:
            self._recorder = Recorder(self._path(settings.record), settings.provider, coordinator, self)

    def get_info(self) -> ProviderInfo:
        """Describe the provider; while recording, the one that is recorded."""
        wrapped = self._recorder.find_wrapped() if self._recorder else None
        if wrapped is not None:
            info: ProviderInfo = wrapped.get_info()
            return info
        settings = self._settings
        return ProviderInfo(
            id="mock",
            display_name="Mock Provider",
            capabilities=list(_CAPABILITIES),
            defaults={
                "model": settings.model,
                "max_tokens": settings.max_output_tokens,
                "temperature": 0.7,
                "timeout": 30.0,
                "context_window": settings.context_window,
                "max_output_tokens": settings.max_output_tokens,
            },
        )

    async def list_models(self) -> list[ModelInfo]:
        """List the one model there is; while recording, those of the provider that is recorded."""
        if self._recorder is not None:
            models: list[ModelInfo] = await self._recorder.wrapped().list_models()
            return models
        settings = self._settings
        model = ModelInfo(
            id=settings.model,
            display_name="Mock Model" if settings.model == "mock-model" else settings.model,
            context_window=settings.context_window,
            max_output_tokens=settings.max_output_tokens,
            capabilities=list(_CAPABILITIES),
            defaults={"temperature": 0.7, "max_tokens": settings.max_output_tokens},
        )
        return [model]

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response."""
        wrapped = self._recorder.find_wrapped() if self._recorder else None
        calls: list[ToolCall] = parse_tool_calls(response) if wrapped is None else wrapped.parse_tool_calls(response)
        return calls

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Answer a request; unknown keywords are ignored."""
        self.call_count += 1
        number = self.call_count
        if self._recorder is not None:
            recorded: ChatResponse = await self._recorder.complete(request, kwargs, number)
            return recorded
        options = read_options(request, kwargs, OptionDefaults(self._settings.model, use_streaming=self.use_streaming))
        clock, raw = WaitClock(), self._settings.raw
        async with ProviderCall(self._events, provider=self.name, model=options.model, clock=clock) as announced:
            await announced.announce(len(request.messages), raw=(lambda: request) if raw else None)
            # A replay compares requests as they come.
            messages = [] if self._replay else await self._sequence.repair(request)
            call = MockCall(number, request, messages, options, clock)
            retry = self._settings.retry if self._replay is None else _NO_RETRY
            response = await announced.attempt(lambda: self._attempt(call), retry, timeout_s=options.timeout_s)
            total = response.usage.total_tokens if response.usage else 0
            await announced.finish(response, raw=(lambda: response) if raw else None, usage={"total_tokens": total})
        if self._add_cost is not None and response.usage is not None:
            self._add_cost(response.usage.cost_usd)
        return response

    async def close(self) -> None:
        """Close what is open; may be called any number of times."""
        if self._recorder is not None:
            self._recorder.close()

    async def _attempt(self, call: MockCall) -> ProviderResponse:
        if self._replay is None:
            return await self._answering.attempt(call)
        recorded = await self._replay.call(call.number)
        recorded.check(call.request)
        if recorded.events and call.options.streams:
            await recorded.emit_events(self._events)
        response = recorded.answer()
        if not recorded.events:
            await self._answering.stream(response, call)
        return response

    def _read_script(self) -> Script | None:
        settings = self._settings
        if settings.script is not None:
            source = self._path(settings.script) if isinstance(settings.script, str) else settings.script
            return Script(source, settings.on_exhausted)
        if settings.mode == "scripted":
            logger.warning("%s: mode 'scripted' without 'script'; the canned answers are used", MODULE_ID)
        return None

    def _path(self, given: str) -> Path:
        return working_dir(self.coordinator) / Path(given).expanduser()
