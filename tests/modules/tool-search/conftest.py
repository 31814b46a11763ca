"""The two tools for a folder of the test's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_search import GlobTool, GrepTool

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator


class Search:
    """A folder to search, and the tools for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.coordinator = MockCoordinator()
        self.recorder = EventRecorder()
        self.coordinator.hooks.register("tool-search:finished", self.recorder.record, name="recorder")

    def put(self, **files: str | bytes) -> None:
        """Write files; `__` in a name stands for a slash, `_` before the ending for its dot."""
        for name, content in files.items():
            stem, _, ending = name.replace("__", "/").rpartition("_")
            self.write(f"{stem}.{ending}" if stem else ending, content)

    def write(self, path: str, content: str | bytes = "needle\n") -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content.encode() if isinstance(content, str) else content)

    async def grep(self, pattern: str, *, config: Any = None, **given: Any) -> ToolResult:
        given = {key.replace("__", "-"): value for key, value in given.items()}
        tool = GrepTool({"working_dir": str(self.folder), **(config or {})}, self.coordinator)
        return await tool.execute({"pattern": pattern, **given})

    async def glob(self, pattern: str, *, config: Any = None, **given: Any) -> ToolResult:
        tool = GlobTool({"working_dir": str(self.folder), **(config or {})}, self.coordinator)
        return await tool.execute({"pattern": pattern, **given})

    def relative(self, paths: list[str]) -> list[str]:
        return [str(Path(path).relative_to(self.folder)) for path in paths]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [data for _, data in self.recorder.get_events()]


@pytest.fixture
def search(tmp_path: Path) -> Search:
    folder = tmp_path / "work"
    folder.mkdir()
    return Search(folder)


@pytest.fixture
def code_of() -> Callable[[ToolResult], str]:
    def code_of(result: ToolResult) -> str:
        assert not result.success
        assert result.error is not None
        assert result.output == result.error["message"]
        return str(result.error["code"])

    return code_of
