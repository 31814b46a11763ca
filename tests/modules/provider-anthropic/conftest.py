"""A provider that talks to the vendor's stand-in, and everything that was heard of it."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_provider_anthropic import AnthropicChatResponse, AnthropicProvider
from anthropic_server import AnthropicServer

from amplifier_core import ChatRequest, Message, ToolSpec
from amplifier_core.testing import EventRecorder

QUICK = {"min_retry_delay": 0, "retry_jitter": False}


def request_of(*messages: Any, tools: tuple[str, ...] = (), **options: Any) -> ChatRequest:
    """Return a request; a plain text is what the user says."""
    given = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    specs = [ToolSpec(name=name, parameters=schema, description=f"The tool {name}.") for name in tools]
    models = [message if isinstance(message, Message) else Message(**message) for message in given]
    return ChatRequest(messages=models, tools=specs or None, **options)


class Desk:
    """One provider, the server it talks to, and its events."""

    def __init__(self, server: AnthropicServer, config: dict[str, Any]) -> None:
        self.server = server
        self.recorder = EventRecorder()
        self.costs: list[Any] = []
        given = {"api_key": server.key, "base_url": server.url, **QUICK, **config}
        coordinator = SimpleNamespace(hooks=self.recorder)
        self.provider = AnthropicProvider(None, given, coordinator, self.costs.append)

    async def ask(self, *messages: Any, given: dict[str, Any] | None = None, **options: Any) -> AnthropicChatResponse:
        """Complete a request; `given` are keywords of `complete`."""
        return await self.provider.complete(request_of(*(messages or ("Hello",)), **options), **(given or {}))

    async def body(self, *messages: Any, given: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Complete a request and return what the server was sent for it."""
        await self.ask(*messages, given=given, **options)
        body: dict[str, Any] = self.server.bodies[-1]
        return body

    def heard(self, prefix: str) -> list[dict[str, Any]]:
        """Return the payloads of the events of a kind."""
        return [data for event, data in self.recorder.events if event.startswith(prefix)]

    def names(self, prefix: str = "") -> list[str]:
        return [event for event, _ in self.recorder.events if event.startswith(prefix)]


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_credentials_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="module")
def one_set_of_certificates() -> Iterator[None]:
    """Read the machine's certificates once instead of for every client; no test needs them."""
    context = ssl.create_default_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", lambda *args, **options: context)
        yield


@pytest.fixture
async def desk(server: AnthropicServer) -> AsyncIterator[Callable[..., Desk]]:
    """Return a function that sets a provider up with the given configuration."""
    desks: list[Desk] = []

    def set_up(**config: Any) -> Desk:
        desks.append(Desk(server, config))
        return desks[-1]

    yield set_up
    for one in desks:
        await one.provider.close()


@pytest.fixture
def make_request() -> Callable[..., ChatRequest]:
    return request_of
