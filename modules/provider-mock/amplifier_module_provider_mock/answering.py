"""Choosing an answer and giving it: after its latency, with its faults, streamed or at once."""

from dataclasses import dataclass, field

from amplifier_core import ChatRequest
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.options import CallOptions
from amplifier_kit.providers.response import ProviderResponse

from .agent import agent_entry
from .entries import Entry
from .faults import ErrorSpec, Faults
from .script import Script
from .settings import MockSettings
from .streaming import WaitClock, stream_content
from .turn_view import TurnView


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
