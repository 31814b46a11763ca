"""The vendor's own client, and one exchange with the vendor through it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from amplifier_core.boundary import raised_as
from amplifier_core.llm_errors import InvalidRequestError, InvalidToolCallError, LLMError, ProviderUnavailableError
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.providers.call import ConcurrencyGate, ProviderCall
from amplifier_kit.providers.errors import ErrorTranslator, VendorFailure, describe, hide_key
from amplifier_kit.providers.stream import ProviderEvents, StreamEvents
from amplifier_kit.providers.vendor import import_sdk

from .conversation import is_blank, without_thinking
from .request_body import WireRequest
from .response import Received
from .settings import MODULE_ID, AnthropicSettings

# What the vendor's client raises, in the kernel's vocabulary.


_STATUS_BY_TYPE = {  # of errors inside a stream, whose own status says that all is well
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Errors:
    """Translates exceptions; the key never stands in what it returns."""

    def __init__(self, provider: str, settings: AnthropicSettings, *, get_key: Callable[[], str | None]) -> None:
        self._get_key, self._limits = get_key, settings.limits
        self._translator = ErrorTranslator(provider, settings.server, settings.overloaded_delay_multiplier)

    def translate(
        self,
        error: Exception,
        *,
        model: str,
        timeout_s: float | None,
        has_begun: bool = False,
        has_answered: bool = False,
    ) -> LLMError:
        """Return the kernel's error; `has_begun` says that part of a streamed answer had arrived.

        `has_answered` says that the headers of the answer were there.
        """
        translated = self._translate(error, model, timeout_s, has_begun, has_answered)
        hide_key(error, self._get_key())
        hide_key(translated, self._get_key())
        return translated

    def broke_off(self, reason: str, *, model: str) -> LLMError:
        """Return the error for a stream that ended too early."""
        return self._translator.broke_off(reason, model=model)

    def _translate(
        self, error: Exception, model: str, timeout_s: float | None, has_begun: bool, has_answered: bool
    ) -> LLMError:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            return self._translator.translate(_failure(error, status), model=model)
        kinds = _kinds(error)
        if isinstance(error, TimeoutError):
            text = f"no answer within {timeout_s:g} seconds (timeout)" if timeout_s is not None else describe(error)
            return self._translator.timed_out(text, model=model)
        if kinds & _TIMEOUTS:
            text = self._limits.exceeded(kinds, has_answered=has_answered)
            if "ConnectTimeout" in kinds:
                return self._translator.unreachable(TimeoutError(text), model=model)
            return self._translator.timed_out(text, model=model)
        if has_begun:
            return self._translator.broke_off(describe(error, with_cause=True), model=model)
        if kinds & _CONNECTION:
            return self._translator.unreachable(error, model=model)
        return self._translator.unexpected(error, model=model)


def is_challenge(error: LLMError) -> bool:
    """True if a proxy in front of the vendor answered instead of it."""
    return isinstance(error, ProviderUnavailableError) and error.status_code == 403


# Names of the vendor's client and of the HTTP library below it, which differs between versions of the client.
_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException"})
_CONNECTION = frozenset({"APIConnectionError", "TransportError"})


def _kinds(error: BaseException) -> set[str]:
    """Return the names of an exception's classes, and of those of its cause."""
    return {kind.__name__ for one in (error, error.__cause__) if one is not None for kind in type(one).__mro__}


def _failure(error: Exception, status: int) -> VendorFailure:
    body = getattr(error, "body", None)
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    if status < 400:
        status = _STATUS_BY_TYPE.get(_error_type(body), status)
    return VendorFailure(status, body=body, text=str(error), headers=dict(headers))


def _error_type(body: Any) -> str:
    inner = body.get("error") if isinstance(body, Mapping) else None
    return str(inner.get("type")) if isinstance(inner, Mapping) else ""


PACKAGE = "anthropic"
_PAGE_SIZE = 100


class Transport:
    """Talks to the vendor; every failure leaves it as an error of the kernel."""

    def __init__(
        self,
        provider: str,
        settings: AnthropicSettings,
        events: ProviderEvents,
        errors: Errors,
        ready_client: Callable[[], Awaitable[Any]],
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._events = events
        self._errors = errors
        self._ready_client = ready_client

    async def send(self, wire: WireRequest, received: Received, timeout_s: float | None) -> None:
        """Send a request and take what comes, within `timeout_s`; the connection is closed whatever happens."""
        async with StreamEvents(self._events) as stream:
            with self._translating(wire.model, timeout_s, received):
                client, limits = await self._prepare(timeout_s, streams=wire.streams)
                async with asyncio.timeout(timeout_s):
                    await self._exchange(client, limits, wire, received, stream)
            if not received.is_complete:
                raise self._errors.broke_off("the stream ended before the answer did", model=wire.model)
            received.check()

    async def list_models(self, timeout_s: float) -> list[dict[str, Any]]:
        """Return the vendor's list of models, all of its pages."""
        with self._translating(self._settings.default_model, timeout_s):
            client, limits = await self._prepare(timeout_s)
            async with asyncio.timeout(timeout_s):
                pages = client.models.list(limit=_PAGE_SIZE, timeout=limits)
                return [_plain(model) async for model in pages]

    async def _exchange(
        self, client: Any, limits: Any, wire: WireRequest, received: Received, stream: StreamEvents
    ) -> None:
        named = {name: wire.body[name] for name in ("model", "max_tokens", "messages", "stream")}
        rest = {name: value for name, value in wire.body.items() if name not in named}
        async with client.messages.with_streaming_response.create(
            **named, extra_body=rest, extra_headers=wire.headers, timeout=limits
        ) as response:
            received.headers = response.headers
            received.has_answered = True
            self._settings.limits.begin_silence(response.http_response)
            if wire.streams:
                async for event in await response.parse():
                    await received.take(_plain(event), stream)
            else:
                received.take_whole(await self._read_json(response, wire.model))

    async def _read_json(self, response: Any, model: str) -> dict[str, Any]:
        try:
            message = await response.json()
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise ProviderUnavailableError(
                f"the answer with status {response.status_code} is not a JSON object",
                provider=self._provider,
                model=model,
                status_code=response.status_code,
            )
        return message

    def _translating(
        self, model: str, timeout_s: float | None, received: Received | None = None
    ) -> AbstractContextManager[None]:
        """Raise what the client raises as an error of the kernel."""
        translate = partial(self._errors.translate, model=model, timeout_s=timeout_s)

        def translated(error: Exception) -> LLMError:
            if received is None:
                return translate(error)
            return translate(error, has_begun=received.has_begun, has_answered=received.has_answered)

        return raised_as(translated, passes=LLMError)

    async def _prepare(self, timeout_s: float | None, *, streams: bool = True) -> tuple[Any, Any]:
        """Return the client and its limits of time; building it may take longer than an attempt has time, and is no
        part of it."""
        client = await self._ready_client()
        sdk = import_sdk(PACKAGE, MODULE_ID, self._provider)
        return client, self._settings.limits.for_client(sdk, timeout_s, streams=streams)


def build_client(sdk: Any, settings: AnthropicSettings, key: str | None) -> Any:
    """Return the vendor's own client; it does not retry."""
    client = sdk.AsyncAnthropic(
        api_key=key,
        base_url=settings.base_url,
        max_retries=0,
        timeout=settings.timeout_s,
        http_client=sdk.DefaultAsyncHttpxClient(follow_redirects=False),  # they would take the key along
    )
    for part in ("messages", "models"):  # the client imports them when they are first used
        getattr(client, part)
    return client


def _plain(model: Any) -> dict[str, Any]:
    """Return what the vendor sent as the data it was, without what its client added."""
    data: dict[str, Any] = model.to_dict(mode="json", exclude_unset=True, warnings=False)
    return data


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
