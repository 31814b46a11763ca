"""The vendor's own client, and one exchange with the vendor through it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from amplifier_core.boundary import raised_as
from amplifier_core.llm_errors import LLMError, ProviderUnavailableError
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.stream import StreamEvents
from amplifier_kit.providers.vendor import import_sdk

from .errors import Errors
from .received_answer import Received
from .request_body import WireRequest
from .settings import MODULE_ID, AnthropicSettings

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
