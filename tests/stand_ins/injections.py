"""What hooks inject, and where it goes: a context that keeps messages, and a display that keeps what it is shown."""

import asyncio
import logging
from typing import Any

import pytest

from amplifier_core.models import ContextInjection, HookResult


class Context:
    """Keeps messages; `add_message` is a coroutine function."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.messages.append(message)

    @property
    def contents(self) -> list[str]:
        return [message["content"] for message in self.messages]


class Display:
    def __init__(self) -> None:
        self.shown: list[tuple[Any, ...]] = []

    def show_message(self, *arguments: Any) -> None:
        self.shown.append(arguments)


def injecting(*contents: str, **fields: Any) -> HookResult:
    items = [ContextInjection(content=content) for content in contents]
    return HookResult(action="inject_context", context_injections=items, **fields)


def budget_warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(
        record.levelno == logging.WARNING and record.getMessage().startswith("Warning: Hook injection budget exceeded")
        for record in caplog.records
    )
