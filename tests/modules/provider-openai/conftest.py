"""An OpenAI provider in front of the loopback server, on a coordinator that keeps every event, and ways to ask it."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from amplifier_module_provider_openai import EVENTS, OpenAIProvider
from openai_server import CHAT, KEY, RESPONSES, OpenAIServer

from amplifier_core import ChatRequest, ChatResponse, Message, ToolSpec
from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import MockCoordinator

ENDPOINTS = {"responses": RESPONSES, "chat": CHAT}
_STAMPS = ("timestamp", "request_id", "session_id", "parent_id")


class Desk:
    """One provider, its server, and what was heard of it; without delays between attempts."""

    def __init__(self, server: OpenAIServer, config: dict[str, Any], *, client: Any = None) -> None:
        self.server = server
        self.coordinator = MockCoordinator()
        self.events: list[tuple[str, dict[str, Any]]] = []
        for event in (*ALL_EVENTS, *EVENTS):
            self.coordinator.hooks.register(event, self._keep)
        self.costs: list[Any] = []
        defaults = {"base_url": server.base_url, "api_key": KEY, "min_retry_delay": 0, "retry_jitter": False}
        self.provider = OpenAIProvider(
            config={**defaults, **config}, coordinator=self.coordinator, client=client, add_cost=self.costs.append
        )

    async def ask(self, *messages: Any, tools: tuple[str, ...] = (), given: Any = None, **options: Any) -> Any:
        """Complete a request; a plain text is what the user says, `given` are keywords of `complete`."""
        return await self.provider.complete(self.request(*messages, tools=tools, **options), **(given or {}))

    def request(self, *messages: Any, tools: tuple[str, ...] = (), **options: Any) -> ChatRequest:
        specs = [ToolSpec(name=name, parameters={"type": "object"}) for name in tools] or None
        return ChatRequest(messages=[as_message(m) for m in messages or ("Hi",)], tools=specs, **options)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was posted, in order."""
        return self.server.sent()

    def heard(self, prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
        """Return the events of a kind, without what differs from run to run."""
        return [
            (event, {key: value for key, value in data.items() if key not in _STAMPS})
            for event, data in self.events
            if event.startswith(prefix)
        ]

    def payloads(self, event: str) -> list[dict[str, Any]]:
        return [data for _, data in self.heard(event)]

    def names(self, prefix: str = "") -> list[str]:
        return [event for event, _ in self.heard(prefix)]

    async def _keep(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, dict(data)))


def as_message(given: Any) -> Message:
    if isinstance(given, ChatResponse):
        return Message(role="assistant", content=given.content, metadata=given.metadata)
    if isinstance(given, str):
        return Message(role="user", content=given)
    return given if isinstance(given, Message) else Message.model_validate(given)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine is set to does not matter."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients trust nobody: loading the world's certificates is what building one takes its time for."""
    monkeypatch.setattr("httpcore2.default_ssl_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """The vendor, with both APIs."""
    with OpenAIServer() as running:
        yield running


@pytest.fixture
async def desks(server: OpenAIServer) -> AsyncIterator[Callable[..., Desk]]:
    """Return a function that sets a provider up, by default in front of the server; all are closed at the end."""
    opened: list[Desk] = []

    def open_desk(config: dict[str, Any] | None = None, *, at: OpenAIServer = server, client: Any = None) -> Desk:
        opened.append(Desk(at, config or {}, client=client))
        return opened[-1]

    yield open_desk
    for desk in opened:
        await desk.provider.close()


@pytest.fixture
def responses_desk(desks: Callable[..., Desk]) -> Desk:
    """A provider that uses the Responses API."""
    return desks({"api": "responses"})


@pytest.fixture
def chat_desk(desks: Callable[..., Desk]) -> Desk:
    """A provider that uses the Chat Completions API."""
    return desks({"api": "chat"})


@pytest.fixture(params=["responses", "chat"])
def api(request: pytest.FixtureRequest) -> str:
    """Each of the two APIs."""
    name: str = request.param
    return name


@pytest.fixture
def endpoint(api: str) -> str:
    return ENDPOINTS[api]


@pytest.fixture
def desk(desks: Callable[..., Desk], api: str) -> Desk:
    """A provider, through each of the two APIs."""
    return desks({"api": api})
