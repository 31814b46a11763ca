"""One `complete()` of a provider: one `llm:request`, its attempts, one `llm:response`.

    async with ProviderCall(events, provider="acme", model=options.model) as call:
        await call.announce(len(body["messages"]), raw=lambda: body)
        response = await call.attempt(send, retry, timeout_s=options.timeout_s)
        await call.finish(response)
    return response

An exception on the way is announced as the response and goes on to the caller.
"""

import asyncio
import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from amplifier_core import ChatResponse, LLMError
from amplifier_core.events import LLM_REQUEST, LLM_RESPONSE, PROVIDER_RETRY
from amplifier_core.llm_errors import LLMTimeoutError, NetworkError
from amplifier_core.utils import json_safe, redact_secrets
from amplifier_core.utils.retry import RetryConfig, retry_with_backoff
from amplifier_kit.config import LenientConfig
from amplifier_kit.types import EventData, JsonObject
from amplifier_system.urls import is_loopback

from .errors import at_server
from .stream import ProviderEvents

CONCURRENCY = "provider:concurrency"

_gates: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], _Gate]]" = WeakKeyDictionary()


class _Gate:
    """The places of one provider and one limit."""

    def __init__(self, limit: int) -> None:
        self.places = asyncio.Semaphore(limit)
        self.active = 0
        self.waiting = 0


class ConcurrencyGate:
    """Lets at most `limit` attempts of a provider run at once; 0 lets all of them.

    Instances with the same limit share their places, those with different limits do not know each other.
    """

    def __init__(self, provider: str, limit: int, events: ProviderEvents) -> None:
        self._provider = provider
        self._limit = limit
        self._events = events

    @asynccontextmanager
    async def place(self, model: str) -> AsyncIterator[None]:
        """Hold a place for one attempt, not for the time between two of them."""
        if self._limit <= 0:
            yield
            return
        gates = _gates.setdefault(asyncio.get_running_loop(), {})
        gate = gates.setdefault((self._provider, self._limit), _Gate(self._limit))
        gate.waiting += 1
        try:
            await gate.places.acquire()
        finally:
            gate.waiting -= 1
        gate.active += 1
        try:
            await self._events.emit(CONCURRENCY, self.state(model))
            yield
        finally:
            gate.active -= 1
            gate.places.release()

    def state(self, model: str) -> EventData:
        """Return how busy the gate is, as events tell it."""
        gate = _gates.get(asyncio.get_running_loop(), {}).get((self._provider, self._limit))
        return {
            "provider": self._provider,
            "model": model,
            "active_requests": gate.active if gate else 0,
            "waiting_requests": gate.waiting if gate else 0,
            "max_concurrent": self._limit,
            "process_id": os.getpid(),
        }


logger = logging.getLogger(__name__)

T = TypeVar("T")

Raw = Callable[[], object]

_MOST_TIMEOUTS = 3  # attempts of one call that may be waited for in vain
_MOST_REFUSALS = 2  # connections that a server on this machine may refuse: it is not running


def read_raw(config: LenientConfig) -> bool:
    """Read the key `raw`, also in its older spellings: do request and response events carry the vendor's bodies?"""
    return config.boolean("raw", config.boolean("raw_debug", config.boolean("debug", default=False)))


class ProviderCall:
    """Announces one call. `raw` returns what the vendor was sent or answered; it is called only if anyone listens."""

    def __init__(
        self,
        events: ProviderEvents,
        *,
        provider: str,
        model: str,
        server: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.provider = provider
        self._server = server
        self._events = events
        self._facts = {"provider": provider, "model": model}
        self._clock = clock
        self._started_s = clock()
        self._is_open = False

    async def announce(self, message_count: int, *, raw: Raw | None = None, **extras: object) -> None:
        """Emit `llm:request`."""
        self._started_s = self._clock()
        self._is_open = True
        payload = {**self._facts, "message_count": message_count, **extras}
        await self._emit(LLM_REQUEST, payload, raw)

    async def attempt(
        self,
        operation: Callable[[], Awaitable[T]],
        retry: RetryConfig,
        *,
        timeout_s: float | None = None,
        gate: ConcurrencyGate | None = None,
    ) -> T:
        """Await `operation()` until it succeeds or no retry is left, each time for `timeout_s` seconds at most.

        The operation raises kernel errors; what it holds, it holds for one attempt, not while waiting for the next.
        That goes for its place in the `gate` too; waiting for a place does not count as time of the attempt. A vendor
        that let three attempts time out is not asked a fourth time.
        """
        timeouts: list[bool] = []
        refusals = 0

        async def once() -> T:
            nonlocal refusals
            try:
                async with gate.place(self._facts["model"]) if gate else nullcontext(), self.in_time(timeout_s):
                    return await operation()
            except LLMTimeoutError as error:
                timeouts.append(error.retryable)
                error.retryable = error.retryable and len(timeouts) < _MOST_TIMEOUTS
                raise
            except NetworkError as error:
                refusals += self._is_here and _is_refused(error)
                error.retryable = error.retryable and refusals < _MOST_REFUSALS
                raise

        async def on_retry(attempt: int, delay: float, error: LLMError) -> None:
            await self.announce_retry(retry, attempt, delay, error)

        try:
            return await retry_with_backoff(once, retry, on_retry=on_retry)
        except LLMTimeoutError as error:
            error.retryable = timeouts[-1] if timeouts else error.retryable  # for the caller, later
            raise
        except NetworkError as error:
            error.retryable = error.retryable or refusals >= _MOST_REFUSALS  # for the caller, too
            raise

    @property
    def _is_here(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(urlsplit(self._server).hostname or "")

    @asynccontextmanager
    async def in_time(self, timeout_s: float | None) -> AsyncIterator[None]:
        """Leave what takes longer than `timeout_s` seconds with an error of the kernel, made from a `TimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                yield
        except TimeoutError as exc:
            if not limit.expired():
                raise
            message = at_server(self.provider, self._server, f"no answer within {timeout_s:g} seconds")
            raise LLMTimeoutError(message, provider=self._facts["provider"], model=self._facts["model"]) from exc

    async def finish(
        self, response: ChatResponse, *, raw: Raw | None = None, usage: JsonObject | None = None, **extras: object
    ) -> None:
        """Emit `llm:response` for a success; `usage` and `extras` are added to what every provider tells."""
        self._is_open = False
        payload = {
            **self._facts,
            "status": "ok",
            "duration_ms": self._duration_ms(),
            "usage": {**usage_payload(response), **(usage or {})},
            "stop_reason": response.finish_reason,
            **{name: value for name, value in extras.items() if value is not None},
        }
        await self._emit(LLM_RESPONSE, payload, raw)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A coroutine that is being closed may not wait any more.
        if not self._is_open or error is None or isinstance(error, GeneratorExit):
            return
        self._is_open = False
        payload = {**self._facts, "status": "error", "duration_ms": self._duration_ms()}
        if isinstance(error, asyncio.CancelledError):
            payload["status"] = "cancelled"
        else:
            payload |= {
                "error": str(error) or type(error).__name__,
                "error_type": type(error).__name__,
                "status_code": getattr(error, "status_code", None),
                "retryable": bool(getattr(error, "retryable", False)),
            }
        await self._events.emit(LLM_RESPONSE, payload)

    async def announce_retry(self, retry: RetryConfig, attempt: int, delay: float, error: LLMError) -> None:
        """Emit `provider:retry` and log it; `attempt`, counted from 1, has failed and the next is `delay` s away."""
        text = str(error) or type(error).__name__
        logger.warning(
            "%s: attempt %d of %d failed with %s: %s; next in %.1f s",
            self._facts["provider"],
            attempt,
            retry.max_retries + 1,
            type(error).__name__,
            text,
            delay,
        )
        payload = {
            **self._facts,
            "attempt": attempt,
            "max_retries": retry.max_retries,
            "delay": delay,
            "retry_after": error.retry_after,
            "error_type": type(error).__name__,
            "error_message": text,
        }
        await self._events.emit(PROVIDER_RETRY, payload)

    async def _emit(self, event: str, payload: EventData, raw: Raw | None) -> None:
        if raw is not None and self._events.listens(event):
            payload["raw"] = redact_secrets(json_safe(raw()))
        await self._events.emit(event, payload)

    def _duration_ms(self) -> int:
        return round((self._clock() - self._started_s) * 1000)


def _is_refused(error: BaseException | None) -> bool:
    """Whether nothing listens where a connection was to lead."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError) or getattr(error, "errno", None) == errno.ECONNREFUSED:
            return True
        error = error.__cause__ or error.__context__
    return False


def usage_payload(response: ChatResponse) -> JsonObject:
    """Return what a response used, with the keys that `llm:response` has for every provider."""
    usage = response.usage
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0, "cost_usd": None}
    payload: EventData = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    for name in ("cache_read_tokens", "cache_write_tokens"):
        if (tokens := getattr(usage, name)) is not None:
            payload[name] = tokens
    payload["cost_usd"] = None if usage.cost_usd is None else str(usage.cost_usd)
    return payload
