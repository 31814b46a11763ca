"""Rendering beside the process that serves: a text that is slow to render slows nothing else down.

Each of the two processes takes one text at a time, and gives up one that keeps the processor busy for a second. Small
texts have a process of their own, so that they do not wait for large ones. A process that does not answer at all is
ended, and its text shown as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from contextlib import suppress

from amplifier_rendering.plain import MAX_CHARACTERS, plain
from amplifier_system.tasks import start_task

SIZE_BYTES = 4
_SMALL = 16 * 1024
_PATIENCE_S = 10.0
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV")

logger = logging.getLogger(__name__)


class Renderer:
    """Turns markdown into safe HTML. Its processes start when they are needed first, or a little before."""

    def __init__(self) -> None:
        self._small, self._large = _RenderProcess(), _RenderProcess()
        self._rendered = _Rendered()
        self._warming: asyncio.Task[str | None] | None = None

    def warm(self) -> None:
        """Start the process for small texts, which are about to be shown."""
        if self._warming is None:
            self._warming = start_task(self._small.render(""))

    async def render(self, text: str) -> str:
        """Return a text as HTML."""
        if not text.strip():
            return ""
        if len(text) > MAX_CHARACTERS:
            return plain(text)
        if (known := self._rendered.find(text)) is not None:
            return known
        html = await (self._small if len(text) <= _SMALL else self._large).render(text)
        if html is None:  # not kept: the next process may have more luck with it
            return plain(text)
        self._rendered.keep(text, html)
        return html

    async def close(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        for process in (self._small, self._large):
            await process.end()


class _RenderProcess:
    """One process, begun anew whenever it is gone."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def render(self, text: str) -> str | None:
        """Return a text as HTML, None when the process does not answer."""
        async with self._turn:
            is_done = False
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    html = await self._exchange(text.encode("utf-8", "replace"))
                is_done = True
            except (TimeoutError, OSError, EOFError) as error:
                logger.warning("a text of %s characters is shown as it is: %r", len(text), error)
                return None
            else:
                return html
            finally:
                if not is_done:  # its next answer does not belong to the next request
                    await self.end()

    async def _exchange(self, text: bytes) -> str:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(len(text).to_bytes(SIZE_BYTES) + text)
        await process.stdin.drain()
        size = int.from_bytes(await process.stdout.readexactly(SIZE_BYTES))
        return (await process.stdout.readexactly(size)).decode()

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _start() -> Process:
    """Start a process that knows nothing of the daemon: no secrets, and nothing to read but what it is sent."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "amplifier_rendering.child",
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
    )


class _Rendered:
    """The latest results, a bounded number of bytes."""

    def __init__(self, most_bytes: int = 16 << 20, largest: int = 256 << 10) -> None:
        self._kept: OrderedDict[bytes, str] = OrderedDict()
        self._most, self._largest, self._size = most_bytes, largest, 0

    def find(self, text: str) -> str | None:
        key = _key(text)
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def keep(self, text: str, html: str) -> None:
        key = _key(text)
        if len(html) > self._largest or key in self._kept:
            return
        self._kept[key] = html
        self._size += len(html)
        while self._size > self._most:
            self._size -= len(self._kept.popitem(last=False)[1])


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
