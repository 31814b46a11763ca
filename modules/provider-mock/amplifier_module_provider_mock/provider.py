"""The provider itself: one call, from the request to the answer that its settings choose."""

import logging
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, ModelInfo, ProviderInfo, ToolCall
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.mounting import working_dir
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.options import OptionDefaults, read_options
from amplifier_kit.providers.response import ProviderResponse, parse_tool_calls
from amplifier_kit.providers.tool_sequence import ToolSequence

from .answering import Answering, MockCall
from .recording import Recorder
from .replay import Replay
from .script import Script
from .settings import MODULE_ID, MockSettings
from .streaming import WaitClock

logger = logging.getLogger(__name__)

_CAPABILITIES = ["tools", "testing", "streaming"]
_NO_RETRY = RetryConfig(max_retries=0)


class MockProvider:
    """Answers without a model: canned, echoed, scripted, by rules, from a recording, or by recording another provider.

    Same configuration and same requests, same answers. Raises `ValueError` when `record` lacks its `provider`, or when
    more than one of `record`, `replay` and `script` is set.
    """

    name = "mock"

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
