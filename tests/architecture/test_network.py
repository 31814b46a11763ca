"""The suite stays on the machine: `tests/conftest.py` refuses what goes beyond loopback, and tells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SUITE = """
import contextlib, socket

# 192.0.2.0/24 and .invalid are reserved: nobody answers there.

def test_swallowed_connection():
    with contextlib.suppress(Exception), socket.socket() as client:
        client.settimeout(0.1)
        client.connect(("192.0.2.1", 80))

def test_swallowed_look_up():
    with contextlib.suppress(Exception):
        socket.create_connection(("amplifier.invalid", 80), timeout=0.1)

def test_swallowed_datagram():
    with contextlib.suppress(Exception), socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"hello", ("192.0.2.1", 53))

def test_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
        socket.create_connection(("localhost", server.getsockname()[1])).close()

def test_unix_socket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("s")
        server.listen()
        client.connect("s")
"""


def test_a_test_that_tries_to_leave_the_machine_fails_even_if_it_hides_the_refusal(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_sockets.py").write_text(SUITE)
    stand_ins = str(CONFTEST.parent / "stand_ins")
    options = ["-q", "-rE", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--rootdir", ".", "--basetemp=temporary"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_sockets.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": stand_ins, "COLUMNS": "200"},  # so that no line of the summary is cut
        capture_output=True,
        text=True,
        check=False,
    )

    told = {line.partition("::")[2] for line in run.stdout.splitlines() if line.startswith("ERROR ")}
    assert told == {
        "test_swallowed_connection - AssertionError: the test tried to connect to 192.0.2.1",
        "test_swallowed_look_up - AssertionError: the test tried to look up 'amplifier.invalid'",
        "test_swallowed_datagram - AssertionError: the test tried to connect to 192.0.2.1",
    }
    assert run.stdout.rstrip().splitlines()[-1].startswith("5 passed, 3 errors")
