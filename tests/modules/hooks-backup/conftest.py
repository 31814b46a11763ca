"""Sessions that keep backups in the test's folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_backup import mount, read_backup

from amplifier_core import AmplifierSession
from amplifier_core.testing import EventRecorder, MockContextManager, MockCoordinator, MockProvider


class Backups:
    """The module, mounted on a coordinator whose context holds `messages`, and the files it wrote."""

    def __init__(self, coordinator: MockCoordinator, folder: Path, cleanup: Callable[[], None]) -> None:
        self.coordinator, self.folder, self.cleanup = coordinator, folder, cleanup
        self.context: MockContextManager = coordinator.get("context")
        self.recorder = EventRecorder()
        for event in ("backup:written", "backup:failed"):
            coordinator.hooks.register(event, self.recorder.record, name="recorder")

    def say(self, *texts: str) -> None:
        self.context.messages += [{"role": "user", "content": text} for text in texts]

    async def emit(self, event: str, **data: Any) -> Any:
        return await self.coordinator.hooks.emit(event, data)

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("transcript_*"))

    def of_kind(self, kind: str) -> list[Path]:
        return sorted(self.folder.glob(f"transcript_{kind}_*"))

    def texts(self, path: Path) -> list[str]:
        return [message["content"] for message in read_backup(path)["messages"]]


@pytest.fixture
def mount_backups(tmp_path: Path) -> Callable[..., Awaitable[Backups]]:
    async def mount_one(folder: Path | None = None, **config: Any) -> Backups:
        coordinator = MockCoordinator()
        await coordinator.mount("context", MockContextManager())
        folder = folder or tmp_path / "backups"
        cleanup = await mount(coordinator, {"backup_dir": str(folder), **config})
        return Backups(coordinator, folder, cleanup)

    return mount_one


@pytest.fixture
async def start_session(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[AmplifierSession]]]:
    """Starts a real session with this module and a provider that answers from a script; ended after the test."""
    sessions: list[AmplifierSession] = []

    async def start(*answers: Any, context: dict[str, Any] | None = None, **config: Any) -> AmplifierSession:
        plan = {
            "session": {
                "orchestrator": {"module": "loop-basic"},
                "context": {"module": "context-simple", "config": context or {}},
            },
            "hooks": [{"module": "hooks-backup", "config": {"backup_dir": str(tmp_path / "backups"), **config}}],
        }
        session = AmplifierSession(plan)
        sessions.append(session)
        await session.initialize()
        assert session.status.load_failures == []
        await session.coordinator.mount("providers", MockProvider(answers), name="mock")
        return session

    yield start
    for session in sessions:
        await session.cleanup()
