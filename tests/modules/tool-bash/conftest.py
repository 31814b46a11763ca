"""The tool mounted on a coordinator of its own, what it tells its session, and what it leaves running."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool, mount
from processes import Started, leaving_nothing

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator

EVENTS = ("tool-bash:started", "tool-bash:finished")


class Shell:
    """The mounted tool and the events it emitted."""

    def __init__(self, coordinator: MockCoordinator, cleanup: Callable[[], Awaitable[None]]) -> None:
        self.coordinator, self.cleanup = coordinator, cleanup
        self.tool: BashTool = coordinator.get("tools", "bash")
        self.recorder = EventRecorder()
        for event in EVENTS:
            coordinator.hooks.register(event, self.recorder.record, name="recorder")

    async def run(self, command: Any, **options: Any) -> ToolResult:
        return await self.tool.execute({"command": command, **options})

    async def output(self, command: str, **options: Any) -> dict[str, Any]:
        """Run a command that succeeds and return its output."""
        result = await self.run(command, **options)
        assert result.success, result.error
        output: dict[str, Any] = result.output
        return output

    def told(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.recorder.events if name == event]


MountShell = Callable[..., Awaitable[Shell]]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as started:
        yield started


@pytest.fixture
async def mount_shell(tmp_path: Path) -> AsyncIterator[MountShell]:
    shells: list[Shell] = []

    async def mount_shell(**config: Any) -> Shell:
        coordinator = MockCoordinator()
        cleanup = await mount(
            coordinator,
            {"working_dir": str(tmp_path), "background_log_dir": str(tmp_path), "sandbox": "off", **config},
        )
        shells.append(Shell(coordinator, cleanup))
        return shells[-1]

    yield mount_shell
    for shell in shells:
        await shell.cleanup()


@pytest.fixture
async def shell(mount_shell: MountShell) -> Shell:
    """The tool as it is without any configuration, but for its directory and the sandbox, which has its own tests."""
    return await mount_shell()


@pytest.fixture
async def free_shell(mount_shell: MountShell) -> Shell:
    """The tool without a safety profile."""
    return await mount_shell(safety_profile="unrestricted")
