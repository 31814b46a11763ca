"""Real repositories reached over file://, real servers on loopback, and a cache of one's own."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from git_repository import Repository, use_plain_git
from processes import Started, leaving_nothing

from amplifier_foundation.sources import Limits, Sources

Files = Mapping[str, str | bytes]


class Server:
    """A server on loopback.

    `answers` maps a path to (status, headers, body), `gates` a path to what its body waits for after the first bytes;
    `seen` holds the requests.
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.gates: dict[str, threading.Event] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.seen.append((self.path, headers))
                status, extra, body = server.answers.get(self.path, (404, {}, b""))
                if extra.get("ETag") and headers.get("if-none-match") == extra["ETag"]:
                    status, body = 304, b""
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | extra).items():
                    if value:
                        self.send_header(name, value)
                self.end_headers()
                if gate := server.gates.get(self.path):
                    self.wfile.write(body[:1])
                    self.wfile.flush()
                    gate.wait(10)
                    body = body[1:]
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Speak https from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)


@pytest.fixture
def new_repository(tmp_path: Path) -> Callable[..., Repository]:
    """Make repositories, each with a first commit."""

    def make(name: str = "origin", files: Files | None = None) -> Repository:
        repository = Repository(tmp_path / "remote" / name)
        repository.commit(files or {"bundle.md": "hello\n", "modules/tool-x/pyproject.toml": "[project]\n"})
        return repository

    return make


@pytest.fixture
def repository(new_repository: Callable[..., Repository]) -> Repository:
    return new_repository()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def other_server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def limits() -> Limits:
    return Limits(retry_delays_s=(0.01, 0.01))


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def sources(cache_dir: Path, limits: Limits) -> Sources:
    return Sources(cache_dir, limits=limits)


@pytest.fixture
def git_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return the git commands that were run from now on, by a `git` that comes first on the path and notes them."""
    real = subprocess.run(
        ["/bin/sh", "-c", "command -v git"], check=True, capture_output=True, text=True
    ).stdout.strip()
    log, folder = tmp_path / "git-calls", tmp_path / "bin"
    folder.mkdir()
    log.touch()
    wrapper = folder / "git"
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{log}"\nexec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return lambda: log.read_text().splitlines()


class SlowRemote:
    """A repository over ssh, by a stand-in for ssh that notes every connection; while `gate` exists, those that come
    after as many as it says wait."""

    def __init__(self, folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.gate, self.log, self.failures = folder / "gate", folder / "log", folder / "failures"
        self.repository = repository
        self.source = f"git+ssh://git@host.invalid{repository.path}"
        script = folder / "ssh"
        script.write_text(
            "#!/bin/sh\n"
            'case "$*" in *" -G "*) exit 0;; esac\n'
            f'echo "$*" >> "{self.log}"\n'
            f'if [ -s "{self.failures}" ]; then sed -i 1d "{self.failures}"; echo "early end" >&2; exit 1; fi\n'
            f'while passing=$(cat "{self.gate}" 2>/dev/null) && [ "$(wc -l < "{self.log}")" -gt "$passing" ]; '
            "do sleep 0.02; done\n"
            "for command; do :; done\n"
            'exec /bin/sh -c "$command"\n'
        )
        script.chmod(0o755)
        self.log.touch()
        monkeypatch.setenv("GIT_SSH_COMMAND", str(script))

    def close(self, *, after: int = 0) -> None:
        """Have connections wait, but for so many further ones."""
        self.gate.write_text(str(len(self.connections()) + after))

    def open(self) -> None:
        self.gate.unlink()

    def fail(self, times: int) -> None:
        self.failures.write_text("x\n" * times)

    def connections(self) -> list[str]:
        return self.log.read_text().splitlines()

    async def wait_for_connections(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.connections()) < count:  # noqa: ASYNC110 - the other side is a process
                await asyncio.sleep(0.01)


@pytest.fixture
def slow_remote(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> SlowRemote:
    return SlowRemote(tmp_path / "ssh", repository, monkeypatch)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Whatever is started; the test fails if something of it is left."""
    with leaving_nothing(monkeypatch) as started:
        yield started
