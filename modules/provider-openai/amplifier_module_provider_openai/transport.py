"""The vendor's client, and one request through it."""

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from amplifier_core.boundary import raised_as
from amplifier_core.llm_errors import LLMError
from amplifier_kit.providers.time_limits import TimeLimits

from .errors import OpenAIErrors
from .settings import NO_KEY, OpenAISettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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
        """Whether the server streams; some answer with a document whatever they are asked for."""
        return "text/event-stream" in self.headers.get("content-type", "")

    @property
    def is_done(self) -> bool:
        """Whether the server has said that its stream is at its end."""
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
