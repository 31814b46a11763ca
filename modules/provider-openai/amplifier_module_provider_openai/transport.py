"""The vendor's client, and one request through it."""

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from amplifier_core.boundary import raised_as
from amplifier_core.llm_errors import ContentFilterError, LLMError, RateLimitError, StreamError
from amplifier_core.utils import json_safe
from amplifier_kit.providers.errors import ErrorTranslator, VendorFailure, describe, hide_key, is_secret
from amplifier_kit.providers.settings import TimeLimits

from .settings import NO_KEY, OpenAISettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# What the vendor's client raises, and what a stream says went wrong, as the kernel's errors.


_OVERFLOW = (  # how servers of local models say it
    "exceeds the available context size",
    "context size",
    "n_ctx",
    "maximum model length",
    "input is too long",
)
_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException"})  # of the client, and of the HTTP library below it
_IMPLIED_STATUS = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "requests": 429,
    "tokens": 429,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
}


class OpenAIErrors:
    """Translates for one provider. What `get_key` returns never appears in an error's text."""

    def __init__(
        self,
        provider: str,
        settings: OpenAISettings,
        *,
        get_key: Callable[[], str | None],
    ) -> None:
        self._translator = ErrorTranslator(provider, settings.server, settings.overloaded_delay_multiplier, _OVERFLOW)
        self._provider = provider
        self._get_key, self._limits = get_key, settings.limits
        self._max_delay_s = settings.retry.max_delay

    def translate(
        self, error: Exception, sdk: Any, *, model: str, has_begun: bool, has_answered: bool = False
    ) -> LLMError:
        """Return the error for what the client raised, before or after the first event of a stream.

        `has_answered` says that the headers of the answer were there.
        """
        hide_key(error, self._get_key())
        if isinstance(error, sdk.APIStatusError):
            return self._refused(failure_of(error), model)
        kinds = {kind.__name__ for one in (error, error.__cause__) if one is not None for kind in type(one).__mro__}
        if kinds & _TIMEOUTS:
            text = self._limits.exceeded(kinds, has_answered=has_answered)
            if "ConnectTimeout" in kinds:
                return self._translator.unreachable(TimeoutError(text), model=model)
            return self._translator.timed_out(text, model=model)
        if isinstance(error, sdk.APIConnectionError):
            if has_begun:
                return self._translator.broke_off(describe(error, with_cause=True), model=model)
            return self._translator.unreachable(error, model=model)
        if isinstance(error, sdk.APIError):
            return self.in_stream(error.body or {"message": error.message}, model=model)
        if isinstance(error, json.JSONDecodeError) and has_begun:
            return self._translator.broke_off("the stream broke off inside an event", model=model)
        return self._translator.unexpected(error, model=model)

    def unreachable(self, error: Exception, *, model: str) -> LLMError:
        """Return the error for a connection that ended before its answer did."""
        return self._translator.unreachable(error, model=model)

    def in_stream(self, given: Any, *, model: str, status: int = 200) -> LLMError:
        """Return the error for one that is reported in the body of an answer with a successful status."""
        body = self._scrub(given if isinstance(given, Mapping) else {"message": str(given)})
        codes = [str(body[key]) for key in ("code", "type") if body.get(key)]
        failure = VendorFailure(next(filter(None, map(_status_of, codes)), status), body)
        if any("policy" in code for code in codes):
            return ContentFilterError(failure.message, provider=self._provider, model=model, status_code=failure.status)
        return self._limited(self._translator.translate(failure, model=model))

    def broke_off(self, reason: str, *, model: str) -> StreamError:
        """Return the error for a stream that ended too early."""
        return self._translator.broke_off(reason, model=model)

    def _refused(self, failure: VendorFailure, model: str) -> LLMError:
        scrubbed = VendorFailure(failure.status, self._scrub(failure.body), self._scrub(failure.text), failure.headers)
        return self._limited(self._translator.translate(scrubbed, model=model))

    def _limited(self, error: LLMError) -> LLMError:
        """Give up at once on a rate limit that lasts too long to wait for."""
        if isinstance(error, RateLimitError) and (error.retry_after or 0) > self._max_delay_s:
            error.retryable = False
        return error

    def _scrub(self, value: Any) -> Any:
        key = self._get_key()
        if not is_secret(key) or not value:
            return value
        text = json.dumps(json_safe(value), ensure_ascii=False)
        written = json.dumps(key, ensure_ascii=False)[1:-1]
        return json.loads(text.replace(written, "[REDACTED]")) if written in text else value


def failure_of(error: Any) -> VendorFailure:
    """Return the answer that a client's status error stands for; a body that is not JSON counts as text."""
    body = error.body if isinstance(error.body, Mapping | list) else None
    text = error.body if isinstance(error.body, str) and error.body else str(error)
    return VendorFailure(error.status_code, body, text, dict(error.response.headers))


def refusal_of(error: LLMError) -> VendorFailure | None:
    """Return the vendor's answer behind a kernel error, None when there was none."""
    cause = error.__cause__
    return failure_of(cause) if hasattr(cause, "status_code") and hasattr(cause, "response") else None


def message_of(failure: VendorFailure) -> str:
    """Return what the vendor says in words, without the frame around it."""
    body = failure.body
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return str(body["message"])
    return failure.message if body else failure.text


def _status_of(code: str) -> int | None:
    if code.isdigit() and int(code) >= 400:
        return int(code)
    return 400 if "image" in code and "policy" not in code else _IMPLIED_STATUS.get(code)


_DRAIN_S = 1.0


class Reply:
    """An answer that has begun: iterate over the events of a stream, or await the `document` of anything else."""

    def __init__(self, stream: Any, errors: OpenAIErrors, model: str) -> None:
        self.headers: dict[str, str] = {name.lower(): value for name, value in stream.response.headers.items()}
        self.has_begun = False
        self._stream = stream
        self._errors = errors
        self._model = model

    @property
    def is_stream(self) -> bool:
        """True if the server streams; some answer with a document whatever they are asked for."""
        return "text/event-stream" in self.headers.get("content-type", "")

    @property
    def is_done(self) -> bool:
        """True if the server has said that its stream is at its end."""
        return getattr(self._stream, "is_done", False)

    def __aiter__(self) -> "Reply":
        return self

    async def __anext__(self) -> dict[str, Any]:
        while True:
            event = await self._stream.__anext__()
            self.has_begun = True
            if isinstance(event, dict):
                return event

    async def drain(self) -> None:
        """Read to the end of a stream whose last event was seen, so that the connection can be used again."""
        with suppress(Exception):  # the answer is complete, whatever happens to the connection now
            async with asyncio.timeout(_DRAIN_S):
                async for _ in self:
                    pass

    async def document(self) -> dict[str, Any]:
        """Return the JSON object that was answered."""
        with raised_as(partial(self._errors.unreachable, model=self._model)):
            content = await self._stream.response.aread()
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            text = content[:200].decode("utf-8", "replace")
            status = self._stream.response.status_code
            raise self._errors.in_stream(f"the answer is not a JSON object: {text}", model=self._model, status=status)
        if document.get("error") and "status" not in document:  # a response object tells both
            raise self._errors.in_stream(document["error"], model=self._model)
        return document


def build_client(sdk: Any, settings: OpenAISettings, key: str | None) -> "AsyncOpenAI":
    """Return the vendor's own client; it does not retry, and every request brings its limits of time."""
    client: AsyncOpenAI = sdk.AsyncOpenAI(
        api_key=key or NO_KEY,
        base_url=settings.base_url,
        max_retries=0,
        timeout=None,
        default_headers=settings.headers or None,
        http_client=sdk.DefaultAsyncHttpxClient(follow_redirects=False),  # they would take the headers along
    )
    return client


class Transport:
    """Sends requests with the client that `ready_client` returns; every failure is one of the kernel's errors."""

    def __init__(
        self, ready_client: Callable[[], Awaitable["AsyncOpenAI"]], errors: OpenAIErrors, limits: TimeLimits
    ) -> None:
        self._ready_client = ready_client
        self._errors = errors
        self._limits = limits

    async def prepare(self, *, model: str) -> None:
        """Build the client, which may take longer than an attempt may, and is not part of one."""
        with self._translating(model):
            await self._ready_client()

    @asynccontextmanager
    async def open(
        self, path: str, body: dict[str, Any], *, model: str, timeout_s: float | None
    ) -> AsyncIterator[Reply]:
        """Send a request; the connection is given back, or closed if the answer was not read to its end."""
        replies: list[Reply] = []
        with self._translating(model, replies):
            client = await self._ready_client()
            sdk = importlib.import_module("openai")
            limits = self._limits.for_client(sdk, timeout_s, streams=bool(body.get("stream")))
            stream = await client.post(
                path,
                body=body,
                cast_to=object,
                options={"timeout": limits},
                stream=True,
                stream_cls=_stream_class(sdk),
            )
            async with stream:
                self._limits.begin_silence(stream.response)
                replies.append(Reply(stream, self._errors, model))
                yield replies[0]

    async def fetch(self, path: str, *, model: str) -> Any:
        """Return the JSON that is found at a path."""
        with self._translating(model):
            client = await self._ready_client()
            limits = self._limits.for_client(importlib.import_module("openai"), None)
            return await client.get(path, cast_to=object, options={"timeout": limits})

    def _translating(self, model: str, replies: Sequence[Reply] = ()) -> AbstractContextManager[None]:
        """Raise what the client raises as an error of the kernel; `replies` holds the answer once it has begun."""

        def translated(error: Exception) -> LLMError:
            sdk = importlib.import_module("openai")
            has_begun = any(reply.has_begun for reply in replies)
            return self._errors.translate(error, sdk, model=model, has_begun=has_begun, has_answered=bool(replies))

        return raised_as(translated, passes=LLMError)


@cache
def _stream_class(sdk: Any) -> Any:
    """Return the class of a stream that remembers whether its last event was `[DONE]`, which is not passed on."""

    class Stream(sdk.AsyncStream[object]):  # type: ignore[misc] # a class of the vendor's, imported late
        is_done = False

        async def _iter_events(self) -> AsyncIterator[Any]:
            async for event in super()._iter_events():
                self.is_done = event.data.startswith("[DONE]")
                yield event

    return Stream
