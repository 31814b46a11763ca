"""The three tools, mounted for a folder of the test's own."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_filesystem import mount

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator


class Files:
    """A working directory, and the tools for it."""

    def __init__(self, folder: Path, coordinator: MockCoordinator) -> None:
        self.folder, self.coordinator = folder, coordinator
        self.recorder = EventRecorder()
        for event in ("artifact:read", "artifact:write"):
            coordinator.hooks.register(event, self.recorder.record, name="recorder")

    @property
    def tools(self) -> dict[str, Any]:
        tools: dict[str, Any] = self.coordinator.get("tools")
        return tools

    async def use(self, tool: str, given: Any) -> ToolResult:
        result: ToolResult = await self.tools[tool].execute(given)
        return result

    async def read(self, file_path: str | Path, **given: Any) -> ToolResult:
        return await self.use("read_file", {"file_path": str(file_path), **given})

    async def write(self, file_path: str | Path, content: str) -> ToolResult:
        return await self.use("write_file", {"file_path": str(file_path), "content": content})

    async def edit(self, file_path: str | Path, old: str, new: str, **given: Any) -> ToolResult:
        return await self.use("edit_file", {"file_path": str(file_path), "old_string": old, "new_string": new, **given})

    @property
    def names(self) -> list[str]:
        """Everything in the working directory."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


MountFiles = Callable[..., Awaitable[Files]]


@pytest.fixture
def mount_files(tmp_path: Path) -> MountFiles:
    async def mount_one(**config: Any) -> Files:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        coordinator = MockCoordinator()
        await mount(coordinator, {"working_dir": str(folder), **config})
        return Files(folder, coordinator)

    return mount_one


@pytest.fixture
async def files(mount_files: MountFiles) -> Files:
    return await mount_files()


def code_of(result: ToolResult) -> str:
    """Return the code of a failure whose message is told twice."""
    assert not result.success
    assert result.error is not None
    assert result.output == result.error["message"]
    return str(result.error["code"])


@pytest.fixture(name="code_of")
def code_of_fixture() -> Callable[[ToolResult], str]:
    return code_of
