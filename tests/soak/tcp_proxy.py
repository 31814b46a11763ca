"""A way to a server that can be cut: connections of one client pass through it, in a process of their own.

    python tcp_proxy.py PORT

It writes the port that it listens on, and takes words from its standard input: `cut` ends every connection at once,
`stop` passes nothing on any more and takes no new connection, as a cable that is pulled, `go` is as before, and
`lead PORT` sends new connections elsewhere. Each word is answered with a line when it has taken effect.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
_AT_ONCE = struct.pack("ii", 1, 0)  # what SO_LINGER takes for an end without goodbye
_CHUNK = 1 << 16


class Proxy:
    """What runs in the process."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()

    async def run(self) -> None:
        server = await asyncio.start_server(self._serve, HOST, 0)
        _say(server.sockets[0].getsockname()[1])
        words = asyncio.StreamReader()
        reading = asyncio.StreamReaderProtocol(words)
        await asyncio.get_running_loop().connect_read_pipe(lambda: reading, sys.stdin)
        while line := await words.readline():
            self._take(*line.decode().split())
            _say("done")
        os._exit(0)  # whatever passes at this moment

    def _take(self, word: str, port: str = "") -> None:
        match word:
            case "cut":
                for writer in self._open:
                    _abort(writer)
            case "stop":
                self._passing.clear()
            case "go":
                self._passing.set()
            case "lead":
                self._target = int(port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._passing.wait()
            from_there, there = await asyncio.open_connection(HOST, self._target)
            self._open.add(there)
            await asyncio.gather(self._pass(reader, there), self._pass(from_there, writer))
        except OSError:
            pass  # whoever is left notices that the other end is gone
        finally:
            for end in filter(None, (writer, there)):
                self._open.discard(end)
                end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes from one end, and that it has hung up."""
        while data := await reader.read(_CHUNK):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        await self._passing.wait()
        if not writer.is_closing():
            writer.write_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    known: socket.socket | None = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):  # it is closed already
        known.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)  # type: ignore[union-attr]
    writer.transport.abort()


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


class ProxyProcess:
    """The proxy as a process, which ends with the block."""

    def __init__(self, target: int) -> None:
        self.target = target
        command = [sys.executable, "-S", str(Path(__file__)), str(target)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.port = int(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def cut(self) -> None:
        """End every connection; new ones can be made at once."""
        self._tell("cut")

    def stop(self) -> None:
        """Let nothing through, without telling anyone."""
        self._tell("stop")

    def go(self) -> None:
        """Let everything through again, also what was held up."""
        self._tell("go")

    def lead(self, target: int) -> None:
        """Send new connections to another server."""
        self.target = target
        self._tell(f"lead {target}")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def _tell(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the proxy ended"
        return answer.strip()


if __name__ == "__main__":
    asyncio.run(Proxy(int(sys.argv[1])).run())
