"""A mock provider on a coordinator that keeps every event, and ways to ask it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_provider_mock import MockProvider

from amplifier_core import ChatRequest, ChatResponse, Message, ToolSpec
from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import MockCoordinator
from amplifier_kit.providers.stream import STREAM_EVENTS

_STAMPS = ("timestamp", "request_id", "session_id", "parent_id")


class Desk:
    """One provider and what was heard of it."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.coordinator = MockCoordinator()
        self.coordinator.register_capability("session.working_dir", str(Path.cwd()))
        self.events: list[tuple[str, dict[str, Any]]] = []
        for event in (*ALL_EVENTS, *STREAM_EVENTS):
            self.coordinator.hooks.register(event, self._keep)
        self.provider = MockProvider(config, self.coordinator)

    async def ask(self, *messages: Any, tools: tuple[str, ...] = (), **options: Any) -> ChatResponse:
        """Complete a request; a plain text is what the user says."""
        given = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
        specs = [ToolSpec(name=name, parameters={"type": "object"}) for name in tools] or None
        request = ChatRequest(messages=[Message(**message) for message in given], tools=specs, **options)
        return await self.provider.complete(request)

    async def text(self, *messages: Any, **options: Any) -> str:
        """Complete a request and return the text of the answer."""
        response: Any = await self.ask(*(messages or ("Hello",)), **options)
        return response.text or ""

    def heard(self, prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
        """Return the events of a kind, without what differs from run to run."""
        return [
            (event, {key: value for key, value in data.items() if key not in _STAMPS})
            for event, data in self.events
            if event.startswith(prefix)
        ]

    def names(self, prefix: str = "") -> list[str]:
        return [event for event, _ in self.heard(prefix)]

    async def _keep(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, dict(data)))


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths lead here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def desk() -> Callable[..., Desk]:
    """Return a function that sets a provider up."""
    return Desk


def calls_of(response: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in response.tool_calls or []]


@pytest.fixture
def calls() -> Callable[[Any], list[tuple[str, dict[str, Any]]]]:
    """Return a function that says which tools a response calls."""
    return calls_of
