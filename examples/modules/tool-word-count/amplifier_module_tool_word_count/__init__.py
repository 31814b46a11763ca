"""tool-word-count: counts the words of a text file.

Configuration: `root`, the folder that files may be read from (default: the current one).
"""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from amplifier_core import ModuleCoordinator, ToolResult

__amplifier_module_type__ = "tool"

WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")


class WordCountInput(BaseModel):
    """The tool's input: the schema the model is shown and the check that is applied are one."""

    path: str = Field(description="a text file, relative to the tool's folder")


class WordCountTool:
    name = "word_count"
    description = "Count the lines and words of a text file and name its most frequent word."
    input_schema = WordCountInput.model_json_schema()

    def __init__(self, root: Path) -> None:
        self._root = root

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        try:
            path = WordCountInput.model_validate(input).path
        except ValidationError as exc:
            return _failure("invalid_input", f"word_count needs a path: {exc.errors()[0]['msg']}")
        try:
            return await asyncio.to_thread(self._count, path)
        except (OSError, ValueError) as exc:
            return _failure("unreadable", f"{path!r} cannot be read as text: {exc}")

    def _count(self, path: str) -> ToolResult:
        root = self._root.resolve()
        file = (root / path).resolve()
        if not file.is_relative_to(root):
            return _failure("access_denied", f"{path!r} is outside of {root.name!r}")
        if not file.is_file():
            return _failure("not_found", f"there is no file {path!r} in {root.name!r}")
        text = file.read_text(encoding="utf-8")
        words = WORD.findall(text.casefold())
        word, times = Counter(words).most_common(1)[0] if words else ("", 0)
        counted = {"path": path, "lines": len(text.splitlines()), "words": len(words)}
        return ToolResult(output={**counted, "most_frequent": word, "times": times})


def _failure(code: str, message: str) -> ToolResult:
    return ToolResult(success=False, error={"code": code, "message": message})


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    root = Path((config or {}).get("root", "."))
    await coordinator.mount("tools", WordCountTool(root), name="word_count")
