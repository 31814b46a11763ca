"""The synthetic stream: a known answer is streamed word by word, as a vendor would."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.stream import StreamEvents


class WaitClock:
    """Waits, and tells the time as the sum of what was waited for, so that two runs tell the same."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    async def wait_ms(self, milliseconds: float) -> None:
        self._now_s += milliseconds / 1000
        if milliseconds > 0:
            await asyncio.sleep(milliseconds / 1000)

    def pace(self, step_ms: float) -> Callable[[], Awaitable[None]]:
        """Return what waits for the end of each step; who is late does not wait, and so keeps the pace of a vendor."""
        loop = asyncio.get_running_loop()
        begun_s, passed_s = loop.time(), 0.0

        async def step() -> None:
            nonlocal passed_s
            self._now_s += step_ms / 1000
            passed_s += step_ms / 1000
            if step_ms > 0:
                await asyncio.sleep(max(0.0, begun_s + passed_s - loop.time()))

        return step


async def stream_content(
    content: list[Any],
    events: ProviderEvents,
    clock: WaitClock,
    *,
    delay_ms: float,
    error: Exception | None = None,
    after_deltas: int = 0,
) -> None:
    """Emit the stream events of a content; an `error` is raised after so many fragments, at the latest at the end."""
    told, wait = 0, clock.pace(delay_ms)
    async with StreamEvents(events) as stream:
        for index, block in enumerate(content):
            match block:
                case ThinkingBlock(thinking=text):
                    await stream.start(index, "thinking")
                case TextBlock(text=text):
                    await stream.start(index, "text")
                case ToolCallBlock(name=name):
                    text = ""
                    await stream.start(index, "tool_use", name=name)
                case _:
                    continue
            for word in text.split():
                if error is not None and told >= after_deltas:
                    raise error
                await stream.delta(index, f"{word} ")
                told += 1
                await wait()
            await stream.end(index)
        if error is not None:
            raise error
