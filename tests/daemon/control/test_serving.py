"""The command `amplifierd`, as a process: it serves, is found again, and ends; what is unsafe it refuses."""

import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx2
import pytest

from amplifierd.control.certificates import tls_files
from amplifierd.control.main import main
from amplifierd.paths import Paths
from amplifierd.settings import Settings

CHECKOUT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def amplifierd(home: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command on a home of its own; what it starts is a process, and is stopped at the end."""

    def run(*arguments: str) -> Ended:
        capfd.readouterr()
        code = main(["--home", str(home), *arguments])
        return Ended(code, *capfd.readouterr())

    yield run
    run("stop")


def running(amplifierd: Run) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(amplifierd("status", "--json").out)
    return shown


def test_a_daemon_is_started_found_read_and_stopped(amplifierd: Run, home: Path) -> None:
    started = amplifierd("start", "--port", "0", "--offline")
    assert started.code == 0, started.err
    url = running(amplifierd)["url"]
    assert json.load(urlopen(f"{url}/health"))["status"] == "healthy"
    left = json.loads((home / "state/run/daemon.json").read_text())
    assert url == f"http://{left['host']}:{left['port']}"
    assert {"boot_id", "started_at", "version"} <= left.keys()
    refusal = f"another amplifierd (pid {left['pid']}) uses {home}"
    again = amplifierd("start", "--port", "0")
    assert (again.code, refusal in again.err) == (3, True)
    beside = amplifierd("serve", "--port", "0")
    assert (beside.code, refusal in beside.err, "amplifierd stop" in beside.err) == (3, True, True)
    assert "ready after" in amplifierd("logs", "-n", "100").out
    assert_a_link_opens_the_page(amplifierd, url, home)
    alone = amplifierd("cluster", "status")
    assert (alone.code, "not part of a cluster" in alone.out, "amplifierd cluster try" in alone.out) == (0, True, True)
    undrained = amplifierd("cluster", "drain")
    assert (undrained.code, "not part of a cluster" in undrained.err) == (1, True)
    assert amplifierd("stop").code == 0
    assert amplifierd("status").code == 1
    nobody = amplifierd("open", "--no-browser")
    assert (nobody.code, "amplifier daemon start" in nobody.err) == (1, True)
    assert not (home / "state/run/daemon.json").exists()
    assert (home / "config/daemon.yaml").exists()


def assert_a_link_opens_the_page(amplifierd: Run, url: str, home: Path) -> None:
    shown = home / "shown.txt"
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{shown}"\n')
    browser.chmod(0o700)
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DISPLAY", raising=False)
        environment.delenv("WAYLAND_DISPLAY", raising=False)
        environment.delenv("BROWSER", raising=False)
        alone = amplifierd("open")
        environment.setenv("BROWSER", f"{browser} %s")
        opened = amplifierd("open")
    link = opened.out.strip()
    assert (alone.code, "no browser here" in alone.err) == (0, True)
    assert link.startswith(f"{url}/auth/login?ticket=")
    assert link != alone.out.strip()
    assert shown.read_text() == link
    with httpx2.Client(follow_redirects=True) as client:
        assert str(client.get(link).url) == f"{url}/app/"
        assert client.get(f"{url}/api/v1/auth/me").json()["via"] == "cookie"


def test_make_serve_starts_it_from_the_checkout(amplifierd: Run, home: Path) -> None:
    variables = {"AMPLIFIERD_HOME": str(home), "AMPLIFIERD_PORT": "0", "AMPLIFIERD_OFFLINE": "1"}
    environment = os.path.relpath(sys.prefix, CHECKOUT)  # as the Makefile has it; the checkout may be below any name
    command = ["make", "--old-file=install", "serve", f"VENV={environment}"]  # as if it were installed, which it is
    with subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, **variables}, stdout=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        said = serving.stdout.readline().decode()
        url = running(amplifierd)["url"]
        assert said.endswith(f"serves {home} at {url}\n")
        assert json.load(urlopen(f"{url}/health"))["status"] == "healthy"
        os.kill(running(amplifierd)["process"]["pid"], signal.SIGINT)  # as Ctrl-C does
        assert serving.wait(60) == 0


def test_one_that_was_killed_is_not_running_and_leaves_nothing_in_the_way(amplifierd: Run) -> None:
    amplifierd("start", "--port", "0")
    os.kill(running(amplifierd)["process"]["pid"], signal.SIGKILL)
    while amplifierd("status").code == 0:
        pass
    assert amplifierd("start", "--port", "0").code == 0


def test_a_port_that_was_asked_for_and_is_taken_ends_it(amplifierd: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = amplifierd("serve", "--port", str(other.getsockname()[1]))
    assert ended.code == 98
    assert "--port" in ended.err


def test_a_socket_or_file_that_is_not_its_own_is_left_where_it_is(amplifierd: Run, tmp_path: Path) -> None:
    file, path = tmp_path / "notes.txt", tmp_path / "other.sock"
    file.write_text("mine")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        taken = [amplifierd("serve", "--uds", str(each)) for each in (file, path)]
    assert [ended.code for ended in taken] == [98, 98]
    assert file.read_text() == "mine"
    assert path.is_socket()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0", "--auth", "none"], "anyone who can reach"),
        (["--host", "0.0.0.0"], "in the clear"),
        (["--host", "0.0.0.0", "--auth", "proxy", "--insecure"], "trusted_proxies"),
    ],
)
def test_where_strangers_could_use_it_it_does_not_listen(amplifierd: Run, flags: list[str], said: str) -> None:
    ended = amplifierd("serve", "--port", "0", *flags)
    assert ended.code == 4
    assert said in ended.err


@pytest.mark.parametrize(("verb", "name"), [("serve", "run/daemon.lock"), ("start", "logs/amplifierd/daemon.out")])
def test_a_home_that_cannot_be_written_is_named(amplifierd: Run, home: Path, verb: str, name: str) -> None:
    place = home / "state" / name
    place.mkdir(parents=True)

    ended = amplifierd(verb)

    assert ended.code == 1
    assert f"error: {place}: Is a directory\n  fix: " in ended.err


def test_settings_that_cannot_be_used_end_it(amplifierd: Run, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config/daemon.yaml").write_text("port: many\n")
    ended = amplifierd("serve")
    assert ended.code == 2
    assert "daemon.yaml: port" in ended.err


def test_an_index_of_a_newer_version_ends_it(amplifierd: Run, home: Path) -> None:
    (home / "state").mkdir(parents=True)
    with sqlite3.connect(home / "state/index.db") as index:
        index.execute("PRAGMA user_version = 99")
        index.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value)")
        index.execute("INSERT INTO meta VALUES ('format_version', 99)")
    ended = amplifierd("serve", "--port", "0")
    assert ended.code == 2, ended.err
    assert "this version reads up to" in ended.err


def test_it_listens_on_a_unix_socket_that_only_its_owner_may_use(amplifierd: Run, tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    assert amplifierd("start", "--uds", str(path)).code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path))) as client:
        assert client.get("http://localhost/health").json()["status"] == "healthy"
    refused = amplifierd("open", "--print")
    assert (refused.code, "no browser can open" in refused.err) == (1, True)
    assert amplifierd("restart").code == 0
    assert running(amplifierd)["uds"] == str(path)
    amplifierd("stop")
    assert not path.exists()


def test_it_speaks_tls_with_a_certificate_of_its_own_or_one_that_is_given(
    amplifierd: Run, home: Path, tmp_path: Path
) -> None:
    assert amplifierd("start", "--port", "0", "--tls", "auto").code == 0
    url = running(amplifierd)["url"]
    assert url.startswith("https://")
    own = home / "config/certs/daemon.crt"
    trusting = ssl.create_default_context(cafile=str(own))
    assert json.load(urlopen(f"{url}/health", context=trusting))["status"] == "healthy"
    link = amplifierd("open", "--no-browser").out.strip()
    answer = httpx2.get(link, verify=trusting)
    assert "; secure" in answer.headers["set-cookie"].lower()
    assert (home / "config/certs/daemon.key").stat().st_mode & 0o777 == 0o600

    given = tls_files(Settings(tls={"mode": "auto"}), Paths.from_environment(tmp_path / "elsewhere"))
    flags = ["--ssl-certfile", str(given[0]), "--ssl-keyfile", str(given[1])]
    assert amplifierd("restart", "--port", "0", "--tls", "manual", *flags).code == 0
    host, port = running(amplifierd)["host"], running(amplifierd)["port"]
    shown = ssl.get_server_certificate((host, port))
    assert shown == given[0].read_text() != own.read_text()


def test_a_certificate_that_cannot_be_used_ends_it(amplifierd: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("This is not a certificate.")
    for given, said in (
        ([], "tls.certfile or tls.keyfile is not set"),
        (["--ssl-certfile", str(text)], "tls.certfile or tls.keyfile is not set"),
        (["--ssl-certfile", str(text), "--ssl-keyfile", str(text)], "cannot be used"),
    ):
        ended = amplifierd("serve", "--port", "0", "--tls", "manual", *given)
        assert (ended.code, said in ended.err) == (2, True), ended.err


def test_a_named_token_is_printed_once_listed_without_its_secret_and_revoked(amplifierd: Run, home: Path) -> None:
    secret = amplifierd("token", "create", "ci", "--scope", "read").out.strip()
    listed = amplifierd("token", "list", "--json").out
    assert json.loads(listed)[0] | {"created_at": None} == {
        **{"name": "ci", "scope": "read", "owner": "ci", "created_at": None, "limits": None, "roots": []}
    }
    assert secret not in listed
    assert secret not in (home / "config/tokens.json").read_text()
    assert amplifierd("token", "create", "ci").code == 1
    assert amplifierd("token", "create", "other", "--scope", "all").code == 2
    assert amplifierd("token", "revoke", "ci").code == 0
    assert amplifierd("token", "revoke", "ci").code == 1
