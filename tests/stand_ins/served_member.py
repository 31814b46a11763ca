"""A member of a cluster that is served, and a wire to it on which everything can be read and changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import SHUT_RDWR, SHUT_WR, create_connection, create_server, socket
from threading import Event, Thread

from amplifierd.app import create_app
from amplifierd.control import serve as web_server
from amplifierd.control.binding import bind
from amplifierd.control.certificates import tls_files
from amplifierd.home import Home

PATIENCE_S = 30.0


@contextmanager
def serving(home: Home) -> Iterator[str]:
    """Serve a home in a thread, and yield its address."""
    binding, is_started = bind(home.settings), Event()
    app = create_app(home=home, address=binding.url)
    has_tls = home.settings.tls.mode != "off"
    server = web_server.Server(
        app,
        find_tls=lambda: tls_files(home.settings, home.paths) if has_tls else None,
        on_started=is_started.set,
    )
    thread = Thread(target=lambda: server.run(sockets=[binding.listener]))
    thread.start()
    try:
        assert is_started.wait(60)
        yield binding.url
    finally:
        server.handle_exit(15, None)
        thread.join()


@dataclass
class Wire:
    """Passes on what goes to a member and comes back, and keeps it; `requests` and `answers` may change it before."""

    address: str
    sent: list[bytes] = field(default_factory=list)
    answered: list[bytes] = field(default_factory=list)
    requests: Callable[[bytes], bytes] = lambda request: request
    answers: Callable[[bytes], bytes] = lambda answer: answer


@contextmanager
def wire_to(address: str) -> Iterator[Wire]:
    """Listen on loopback in front of a member."""
    host, _, port = address.removeprefix("http://").partition(":")
    with create_server(("127.0.0.1", 0)) as listener:
        wire = Wire(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def pass_on(source: socket, target: socket, keep: list[bytes], change: Callable[[bytes], bytes]) -> None:
            with suppress(OSError), source:
                while data := source.recv(1 << 20):
                    keep.append(data)
                    target.sendall(change(data))
            with suppress(OSError):
                target.shutdown(SHUT_WR)

        def listen() -> None:
            with suppress(OSError):
                while True:
                    near = listener.accept()[0]
                    far = create_connection((host, int(port)))
                    ways = (
                        (near, far, wire.sent, lambda data: wire.requests(data)),
                        (far, near, wire.answered, lambda data: wire.answers(data)),
                    )
                    for way in ways:
                        threading.Thread(target=pass_on, args=way, daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        yield wire
        listener.shutdown(SHUT_RDWR)


def say(address: str, *requests: bytes) -> list[int]:
    """Send bytes as they are on one connection, and return the status of each answer."""
    host, _, port = address.removeprefix("http://").partition(":")
    statuses = []
    with create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        for request in requests:
            connection.sendall(request)
            heard = b""
            while b"\r\n\r\n" not in heard:
                received = connection.recv(1 << 16)
                assert received, f"the connection ended after {heard!r}"
                heard += received
            head, _, body = heard.partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            while lengths and len(body) < int(lengths[0].split(b":")[1]):
                body += connection.recv(1 << 16)
            statuses.append(int(head.split(b" ")[1]))
    return statuses
