"""Sending requests of one API: attempts, stream events, and fields that a server refuses."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from amplifier_core.llm_errors import InvalidRequestError, InvalidToolCallError, LLMError
from amplifier_kit.providers.cost import Prices
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.gate import ConcurrencyGate
from amplifier_kit.providers.shortfalls import WarnOnce
from amplifier_kit.providers.stream import StreamEvents

from .errors import OpenAIErrors, refusal_of
from .pending_request import PendingRequest
from .refused_fields import RefusedFields
from .settings import OpenAISettings
from .transport import Reply, Transport

logger = logging.getLogger(__name__)

T = TypeVar("T")

Collect = Callable[[Reply, StreamEvents], Awaitable[T]]

_INSTEAD = {"response_format": "the format of the answer is free", "tool_choice": "the model chooses its tools"}


@dataclass(frozen=True, slots=True)
class Link:
    """What both APIs need to reach the vendor and to be heard."""

    provider: str
    settings: OpenAISettings
    transport: Transport
    errors: OpenAIErrors
    events: ProviderEvents
    gate: ConcurrencyGate
    prices: Prices
    warn: WarnOnce
    add_cost: Callable[[Decimal | None], None]


class Sender:
    """Sends to one path; `refused` is None for a server that knows every field."""

    def __init__(self, link: Link, path: str, refused: RefusedFields | None) -> None:
        self._link = link
        self._path = path
        self._refused = refused
        self.final_statuses: frozenset[int] = frozenset()  # which no retry will change

    async def send(self, asked: PendingRequest, body: dict[str, Any], collect: Collect[T]) -> T:
        """Return what `collect` makes of the answer; every attempt has an answer of its own."""
        link = self._link
        while True:
            sent = self._accepted(asked, body)
            try:
                return await asked.call.attempt(
                    lambda: self._once(asked, sent, collect),  # noqa: B023 - awaited before the next round
                    link.settings.retry,
                    gate=link.gate,
                )
            except InvalidRequestError as error:
                field = self._refused.learn(refusal_of(error), sent) if self._refused else None
                if field is None:
                    raise
                logger.warning("%s: the server refuses %r; it is left out from now on", link.provider, field)

    async def send_twice(self, asked: PendingRequest, send: Callable[[], Awaitable[T]]) -> T:
        """Return what `send()` returns; a tool call that cannot be read is asked for once more."""
        try:
            return await send()
        except InvalidToolCallError as error:
            await asked.call.announce_retry(self._link.settings.retry, 1, 0.0, error)
        return await send()

    async def _once(self, asked: PendingRequest, body: dict[str, Any], collect: Collect[T]) -> T:
        options = asked.options
        opened = self._link.transport.open(self._path, body, model=options.model, timeout_s=options.timeout_s)
        try:
            async with (
                StreamEvents(self._link.events) as told,
                asked.call.in_time(options.timeout_s),
                opened as reply,
            ):
                return await collect(reply, told)
        except LLMError as error:
            error.retryable = error.retryable and error.status_code not in self.final_statuses
            raise

    def _accepted(self, asked: PendingRequest, body: dict[str, Any]) -> dict[str, Any]:
        if self._refused is None:
            return body
        for field in self._refused.names & _INSTEAD.keys() & body.keys():
            asked.shortfalls.add(field, _INSTEAD[field], "the server refuses it")
        return self._refused.apply(body)
