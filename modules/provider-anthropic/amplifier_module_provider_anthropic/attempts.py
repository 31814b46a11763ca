"""The attempts at one request, and the requests of one call."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from amplifier_core import LLMError
from amplifier_core.llm_errors import InvalidRequestError, InvalidToolCallError
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.gate import ConcurrencyGate

from .content_blocks import is_blank
from .conversation import without_thinking
from .errors import is_challenge
from .received_answer import Received
from .request_body import WireRequest
from .transport import Transport

THINKING_BINDING_RETRY = "provider:thinking_binding_retry"
CLOUDFLARE_CHALLENGE = "provider:cloudflare_challenge"

_FOREIGN_THINKING = ("bound to a different conversation", "invalid `signature`")
_MAX_PAUSES = 5


class Attempts:
    """Sends a request until it is answered; `count_cost` is called with every answer that reports its usage."""

    def __init__(
        self,
        provider: str,
        transport: Transport,
        events: ProviderEvents,
        gate: ConcurrencyGate,
        count_cost: Callable[[Received], Awaitable[None]],
    ) -> None:
        self._provider = provider
        self._transport = transport
        self._events = events
        self._gate = gate
        self._count_cost = count_cost

    async def answers(
        self, wire: WireRequest, call: ProviderCall, retry: RetryConfig, timeout_s: float | None
    ) -> list[Received]:
        """Return the vendor's answer; where it pauses in the middle of one, the request goes on with what there is."""
        answers: list[Received] = []
        while not answers or (answers[-1].stop_reason == "pause_turn" and len(answers) <= _MAX_PAUSES):
            if answers:
                wire = _continued(wire, answers[-1])
            one = _Request(self, wire, timeout_s)
            try:
                answers.append(await call.attempt(one.attempt, retry, gate=self._gate))
            except InvalidToolCallError as error:
                error.retryable = False  # it was tried again already
                raise
        return answers

    async def send(self, wire: WireRequest, timeout_s: float | None) -> Received:
        """Send a request once."""
        received = Received(wire.model)
        try:
            await self._transport.send(wire, received, timeout_s)
        except LLMError as error:
            if is_challenge(error):
                payload = {**self._gate.state(wire.model), "timestamp": datetime.now(UTC).isoformat()}
                await self._events.emit(CLOUDFLARE_CHALLENGE, payload)
            raise
        finally:
            await self._count_cost(received)
        return received

    async def announce_foreign_thinking(self, model: str, error: LLMError) -> None:
        payload = {"provider": self._provider, "model": model, "error": str(error)}
        await self._events.emit(THINKING_BINDING_RETRY, payload)


class _Request:
    """One request over its attempts."""

    def __init__(self, attempts: Attempts, wire: WireRequest, timeout_s: float | None) -> None:
        self._attempts = attempts
        self._wire = wire
        self._timeout_s = timeout_s
        self._unreadable_calls = 0

    async def attempt(self) -> Received:
        """Try once. Thinking that the vendor refuses, because it belongs to another conversation, is left out."""
        try:
            return await self._send()
        except InvalidRequestError as error:
            bare = replace(self._wire, body={**self._wire.body, "messages": without_thinking(self._messages)})
            is_foreign = any(phrase in str(error).lower() for phrase in _FOREIGN_THINKING)
            if not is_foreign or bare.body["messages"] == self._messages:
                raise
            await self._attempts.announce_foreign_thinking(self._wire.model, error)
        self._wire = bare
        return await self._send()

    @property
    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self._wire.body["messages"]
        return messages

    async def _send(self) -> Received:
        try:
            return await self._attempts.send(self._wire, self._timeout_s)
        except InvalidToolCallError as error:
            self._unreadable_calls += 1
            error.retryable = self._unreadable_calls == 1
            raise


def _continued(wire: WireRequest, answer: Received) -> WireRequest:
    content = [block for block in answer.content if not is_blank(block)]
    messages = [*wire.body["messages"], {"role": "assistant", "content": content}]
    return replace(wire, body={**wire.body, "messages": messages})
