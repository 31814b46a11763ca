"""A session log in a folder of its own, and the lines that were written to it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_logging import mount, on_session_ready

from amplifier_core.testing import MockCoordinator

SESSION_ID = "test-session"  # the one that MockCoordinator has


class SessionLogs:
    """hooks-logging mounted on a coordinator, with its logs below one folder."""

    def __init__(self, coordinator: Any, folder: Path) -> None:
        self.coordinator = coordinator
        self.folder = folder
        self.cleanup: Callable[[], None] = lambda: None

    async def mount(self, **config: Any) -> None:
        config.setdefault("session_log_template", f"{self.folder}/{{session_id}}/events.jsonl")
        self.cleanup = await mount(self.coordinator, config)

    async def ready(self) -> None:
        await on_session_ready(self.coordinator)

    async def emit(self, event: str, **payload: Any) -> Any:
        return await self.coordinator.hooks.emit(event, payload)

    def path(self, session_id: str = SESSION_ID) -> Path:
        return self.folder / session_id / "events.jsonl"

    def records(self, session_id: str = SESSION_ID) -> list[dict[str, Any]]:
        """Return the lines of a session's log, parsed; none when there is no log."""
        path = self.path(session_id)
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def events(self, session_id: str = SESSION_ID) -> list[str]:
        return [record["event"] for record in self.records(session_id)]


@pytest.fixture
def logs(coordinator: MockCoordinator, tmp_path: Path) -> Iterator[SessionLogs]:
    logs = SessionLogs(coordinator, tmp_path / "sessions")
    yield logs
    logs.cleanup()


@pytest.fixture
def other_logs(tmp_path: Path) -> Iterator[SessionLogs]:
    """A second session in the same process."""
    logs = SessionLogs(MockCoordinator(), tmp_path / "other")
    yield logs
    logs.cleanup()
