"""The synthetic stream: a known answer is streamed word by word, as a vendor would."""

import asyncio
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
    told = 0
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
                await clock.wait_ms(delay_ms)
            await stream.end(index)
        if error is not None:
            raise error
