"""The command `amplifier` in processes of their own that need not import anything.

A keeper imports once what the command imports, and forks for each call. What it forks is a process like any other: with
its own signals, terminal, directory, environment and end; only the second in which an interpreter starts is spared.

    with WarmCommand() as command:
        process = command.start(["run", "Hi"], cwd=work, environment=environment)
        out, err = process.communicate(timeout=60)
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pty
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TextIO

_MOST_BYTES = 1 << 20
_STATUS_FD = 3  # after stdin, stdout and stderr


class WarmProcess:
    """A call of the command; `stdout` and `stderr` are its pipes, `terminal` is the other side of its terminal."""

    def __init__(self, status: int, pipes: Mapping[str, int], terminal: int | None) -> None:
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(pipes[name], mode) if name in pipes else None
            for name, mode in (("stdin", "w"), ("stdout", "r"), ("stderr", "r"))
        )
        self.terminal = terminal
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def communicate(self, text: str = "", timeout: float = 60) -> tuple[str, str]:
        """Write a text, read to the end and wait; the command is killed when that takes too long."""
        assert self.stdout is not None
        assert self.stderr is not None
        end = time.monotonic() + timeout
        late = threading.Timer(timeout, self.kill)
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))  # type: ignore[union-attr]
        late.start()
        reader.start()
        try:
            if self.stdin is not None:
                with suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(text)
            out = self.stdout.read()
            reader.join()
        finally:
            late.cancel()
        self.stdout.close()
        self.stderr.close()
        self.wait(max(end - time.monotonic(), 1))
        return out, errors[0]


class WarmCommand:
    """The keeper; it ends with the block."""

    def __enter__(self) -> WarmCommand:
        theirs = self._open()
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._keeper.wait()

    @contextmanager
    def importing(self, *packages: str) -> Iterator[WarmCommand]:
        """Have another keeper until the block ends, forked from this one, which imports further packages."""
        other = WarmCommand()
        theirs = other._open()
        with theirs:
            socket.send_fds(self._channel, [json.dumps({"packages": packages}).encode()], [theirs.fileno()])
        try:
            yield other
        finally:
            other._close()

    def _open(self) -> socket.socket:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._started: list[WarmProcess] = []
        return theirs

    def _close(self) -> None:
        for process in self._started:
            if process.returncode is None:
                process.kill()
        self._channel.close()

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdin: bool = False,
        columns: int | None = None,
    ) -> WarmProcess:
        """Call the command, with pipes or, if it is `columns` wide, in a terminal; without `stdin` it reads nothing."""
        if columns is not None:
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
            return self._call(arguments, cwd, environment, [theirs] * 3, {}, ours)
        reading, stdin_end = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        stdout_end, writing = os.pipe()
        stderr_end, complaining = os.pipe()
        pipes = {"stdout": stdout_end, "stderr": stderr_end, **({"stdin": stdin_end} if stdin else {})}
        return self._call(arguments, cwd, environment, [reading, writing, complaining], pipes, None)

    def _call(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        theirs: list[int],
        pipes: Mapping[str, int],
        terminal: int | None,
    ) -> WarmProcess:
        request = {
            "arguments": [*arguments],
            "cwd": str(cwd),
            "environment": dict(environment),
            "has_terminal": terminal is not None,
        }
        status, telling = os.pipe()
        socket.send_fds(self._channel, [json.dumps(request).encode()], [*theirs, telling])
        for descriptor in {*theirs, telling}:
            os.close(descriptor)
        self._started.append(WarmProcess(status, pipes, terminal))
        return self._started[-1]


def _await_call(channel: socket.socket) -> dict[str, Any]:
    """Fork for each call, and return it in the process that was forked for it. The keeper itself never returns."""
    waiting: set[int] = set()
    while True:
        message, descriptors, *_ = socket.recv_fds(channel, _MOST_BYTES, _STATUS_FD + 1)
        options = os.WNOHANG if message else 0
        waiting -= {pid for pid in waiting if os.waitpid(pid, options)[0]}
        if not message:
            os._exit(0)
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            channel.close()
            if "packages" not in request:
                return _begin_call(request, descriptors)
            _share(*request["packages"])
            channel, waiting = socket.socket(fileno=descriptors[0]), set()
            continue
        waiting.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)


def _begin_call(request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Fork the call itself and return there; tell its process and its end."""
    *standard, telling = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(telling)
        os.setsid()
        for target, descriptor in enumerate(standard):
            os.dup2(descriptor, target)
        for descriptor in standard:
            os.close(descriptor)
        if request["has_terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        return request
    for descriptor in standard:
        os.close(descriptor)
    os.write(telling, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(telling, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _answer(request: dict[str, Any]) -> None:
    """Be the command."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
    sys.path[:1] = [request["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]  # as `python -m`
    sys.argv = ["amplifier", *request["arguments"]]
    try:
        runpy.run_module("amplifier_cli", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _end(ended.code if isinstance(ended.code, int) else 1)


def _end(code: int) -> None:
    """End as an interpreter does, but without taking the modules apart, which are the keeper's."""
    threading._shutdown()  # type: ignore[attr-defined] # ends the pools and waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stream(descriptor: int, mode: Literal["r", "w"]) -> TextIO:
    """Return a standard stream as an interpreter opens it."""
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    errors = "backslashreplace" if descriptor == 2 else "strict"
    return io.TextIOWrapper(
        buffered,
        encoding="utf-8",
        errors=errors,
        line_buffering=descriptor == 2 or os.isatty(descriptor),
        write_through="PYTHONUNBUFFERED" in os.environ,
    )


def _import_everything() -> None:
    """Import what the command imports to answer, and to talk at a terminal."""
    from kill_points import import_modules_of  # in the keeper alone: it watches what the process does

    import amplifier_cli.main

    with tempfile.TemporaryDirectory() as folder:

        def act() -> None:
            os.environ.update(AMPLIFIERD_HOME=f"{folder}/home", AMPLIFIERD_OFFLINE="1", HOME=folder)
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            amplifier_cli.main.main(["run", "--profile", "offline", "List files"])
            importlib.import_module("amplifier_cli.chat.start")

        import_modules_of(act)


def _share(*packages: str) -> None:
    """Import packages, and share with the calls all that is imported."""
    for package in packages:
        importlib.import_module(package)
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyring"]:
        del sys.modules[name]  # it chooses a keyring when it is imported
    gc.freeze()  # it is shared as long as no one looks through it


if __name__ == "__main__":
    _import_everything()
    _share()
    _answer(_await_call(socket.socket(fileno=int(sys.argv[1]))))
