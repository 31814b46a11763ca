"""A way to the daemon of a home on which some requests get lost: they are never answered."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from amplifierd.paths import Paths
from amplifierd.server.run_file import run_file


class Way(socketserver.ThreadingTCPServer):
    """Leads to a daemon; requests for paths that end with one of the `muted` texts do not get there."""

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.muted: tuple[str, ...] = ()

    def swallows(self, request: bytes) -> bool:
        return any(f"{path} HTTP/1.1\r\n".encode() in request for path in self.muted)


class _Connection(socketserver.BaseRequestHandler):
    server: Way

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.target)) as there:
            answering = threading.Thread(target=self._answer, args=(there,))
            answering.start()
            with suppress(OSError):  # either end may leave in the middle
                while data := self.request.recv(65_536):
                    if not self.server.swallows(data):
                        there.sendall(data)
                there.shutdown(socket.SHUT_RDWR)
            answering.join()

    def _answer(self, there: socket.socket) -> None:
        with suppress(OSError):
            while data := there.recv(65_536):
                self.request.sendall(data)
            self.request.shutdown(socket.SHUT_RDWR)


@contextmanager
def way_to_daemon(home: Path) -> Iterator[Way]:
    """Let clients of a home come to its daemon by another way, until the block ends."""
    file = run_file(Paths.from_environment(home, {}))
    before = file.read_text()
    known = json.loads(before)
    with Way(known["port"]) as way:
        serving = threading.Thread(target=way.serve_forever)
        serving.start()
        file.write_text(json.dumps({**known, "url": f"http://127.0.0.1:{way.server_address[1]}"}))
        try:
            yield way
        finally:
            file.write_text(before)
            way.shutdown()
            serving.join()
