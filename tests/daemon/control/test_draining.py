"""`amplifierd cluster drain --wait`: it ends when the member has left, and says so if that never happens."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from amplifierd.control.main import main
from amplifierd.paths import Paths
from amplifierd.server.run_file import serving, write_run_file

MEMBER = "member_one"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[list[str]], list[str]]]:
    """Serve a home as a daemon whose member is in one state after the other; returns what is asked of it."""
    started: list[tuple[HTTPServer, threading.Thread]] = []
    served = ExitStack()

    def begin(states: list[str]) -> list[str]:
        asked: list[str] = []
        server = HTTPServer(("127.0.0.1", 0), _daemon(states, asked))
        port = server.server_address[1]
        served.enter_context(serving(Paths.from_environment(tmp_path)))
        where = {"host": "127.0.0.1", "port": port, "url": f"http://127.0.0.1:{port}"}
        write_run_file(Paths.from_environment(tmp_path), boot_id="boot", uds=None, version="1", **where)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        started.append((server, thread))
        return asked

    yield begin
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()
    served.close()


def _daemon(states: list[str], asked: list[str]) -> type[BaseHTTPRequestHandler]:
    class Daemon(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self._answer(202, {"member_id": MEMBER, "state": "draining"})

        def do_GET(self) -> None:
            asked.append(self.path)
            state = states.pop(0)
            self._answer(200, {"member_id": MEMBER, "members": [{"member_id": MEMBER, "state": state}]})

        def _answer(self, status: int, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    return Daemon


@pytest.mark.parametrize(
    ("states", "code", "told"),
    [
        (["active", "late", "draining", "left"], 0, "can be stopped"),
        (["draining", "fenced"], 1, "was fenced before it had ended its turns"),
    ],
)
def test_a_drain_is_waited_for_until_the_member_has_left(
    tmp_path: Path,
    serve: Callable[[list[str]], list[str]],
    capsys: pytest.CaptureFixture[str],
    states: list[str],
    code: int,
    told: str,
) -> None:
    asked = serve(states)

    assert main(["--home", str(tmp_path), "cluster", "drain", MEMBER, "--wait"]) == code

    assert told in "".join(capsys.readouterr())
    assert asked[0] == f"/api/v1/cluster/members/{MEMBER}/drain"
    assert states == []
