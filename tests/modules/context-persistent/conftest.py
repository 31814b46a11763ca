"""Conversations in files, and processes that use them."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import warm_python
from amplifier_module_context_persistent import PersistentContextManager

Open = Callable[..., Awaitable[PersistentContextManager]]


class ConversationFile:
    """Where a conversation is kept; at first there is nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def contents(self) -> bytes:
        return self.path.read_bytes()

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.contents().decode().split("\n")[:-1]]

    def write(self, contents: bytes) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(contents)

    def obstruct(self) -> None:
        """Make writing impossible, also for root: the directory becomes a file."""
        if self.path.parent.is_dir():
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        self.path.parent.write_text("in the way")

    def make_way(self) -> None:
        self.path.parent.unlink()

    def append(self, *messages: Any) -> None:
        """Write messages as another process does."""
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(message) + "\n" for message in messages)


@pytest.fixture
def file(tmp_path: Path) -> ConversationFile:
    return ConversationFile(tmp_path / "session" / "context-messages.jsonl")


@pytest.fixture
async def open_context(file: ConversationFile) -> AsyncIterator[Open]:
    """Open the conversation as a new session does; each is closed in the end."""
    opened: list[PersistentContextManager] = []

    async def open_new(**settings: Any) -> PersistentContextManager:
        context = PersistentContextManager(**{"transcript_path": file.path, **settings})
        opened.append(context)
        await context.initialize()
        return context

    yield open_new
    for context in opened:
        context.close()


@pytest.fixture
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Start another process of this interpreter, with the modules of this one."""

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        prelude = f"import sys; sys.path[:] = {sys.path!r}\n"
        return warm_python.Popen(
            [sys.executable, "-c", prelude + code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
