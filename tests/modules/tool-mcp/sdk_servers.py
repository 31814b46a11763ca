"""The server made with the official SDK, as tests start it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = str(Path(__file__).parents[2] / "stand_ins/mcp_server.py")


def stdio_entry(**keys: Any) -> dict[str, Any]:
    """Return the entry of a server that is run as a child process."""
    return {"command": sys.executable, "args": [PROGRAM, "stdio"], **keys}


class Nursery:
    """A process that has done the slow imports and starts servers over HTTP as children of its own."""

    def __init__(self) -> None:
        command = [sys.executable, PROGRAM, "nursery"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *question: Any) -> Any:
        """Have one done: `start` with transport, port and token, or `kill` with a pid."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class HttpServer:
    """The server in a process of its own, which a test can kill and start again at the same address."""

    def __init__(self, nursery: Nursery, *, token: str = "", transport: str = "http") -> None:
        self.port = 0
        self._nursery, self._token, self._transport = nursery, token, transport
        self._pid: int | None = None

    def entry(self, **keys: Any) -> dict[str, Any]:
        path = "mcp" if self._transport == "http" else "sse"
        return {"url": f"http://127.0.0.1:{self.port}/{path}", "transport": self._transport, **keys}

    def start(self, token: str | None = None) -> None:
        token = self._token if token is None else token
        self._pid, self.port = self._nursery.ask("start", self._transport, self.port, token)

    def kill(self) -> None:
        if self._pid is not None:
            self._nursery.ask("kill", self._pid)
            self._pid = None


@contextmanager
def http_server(nursery: Nursery, *, token: str = "", transport: str = "http") -> Iterator[HttpServer]:
    server = HttpServer(nursery, token=token, transport=transport)
    server.start()
    try:
        yield server
    finally:
        server.kill()
