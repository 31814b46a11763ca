"""Python in processes of their own that need not import anything: `run` and `Popen` as `subprocess` has them.

A keeper imports once what the product and its programs import, and forks for each call. What it forks is a process
like any other: with its own signals, terminal, directory, environment and end; only the second in which an interpreter
starts and imports is spared. The first word of a command is the interpreter, what follows is `-m` and a module, `-c`
and code, or the path of a program:

    done = warm_python.run([sys.executable, "-m", "amplifier_cli", "run", "Hi"], capture_output=True, text=True)

`Programs` are for a shell, which knows them by their names.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

_KEEPER = Path(__file__).with_name("python_keeper.py")
_PROGRAM = Path(__file__).with_name("warm_program.py")
_NAMES = ("amplifier", "amplifier-core", "amplifierd")


class Keeper:
    """What forks interpreters."""

    def __init__(self, channel: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._channel, self._process = channel, process

    @contextmanager
    def importing(self, *packages: str) -> Iterator[Keeper]:
        """Have another until the block ends, forked from this one, which imports further packages."""
        ours, theirs = _channel()
        with theirs:
            self.ask({"packages": packages}, [theirs.fileno()])
        other = Keeper(ours)
        try:
            yield other
        finally:
            other.end()

    @property
    def descriptor(self) -> int:
        """That of the channel, for a process that asks as well."""
        return self._channel.fileno()

    def ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)

    def end(self) -> None:
        with self._channel:
            self._channel.send(b"")
        if self._process is not None:
            self._process.wait()


@cache
def shared_keeper() -> Keeper:
    """Return the one of this process and those that it forks; it does not belong to the test that needs it first."""
    from amplifier_system.processes import is_marker  # programs of a shell import this file without site-packages

    ours, theirs = _channel()
    environment = {name: value for name, value in os.environ.items() if not is_marker(name)}
    with theirs:
        command = [sys.executable, _KEEPER, str(theirs.fileno())]
        options = {"env": environment, "pass_fds": [theirs.fileno()], "start_new_session": True}
        keeper = Keeper(ours, subprocess.Popen(command, **options))
    atexit.register(keeper.end)
    return keeper


def _channel() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Popen(subprocess.Popen[Any]):
    """A process that a keeper forked; it leads a session of its own. Of the options those for streams, `cwd` and `env`
    count. Where its `stdin` is a terminal, it becomes the one that controls the process."""

    def __init__(self, command: Sequence[object], *, keeper: Keeper | None = None, **options: Any) -> None:
        self._keeper = keeper or shared_keeper()
        super().__init__([str(word) for word in command], **options)  # type: ignore[call-overload]

    def _execute_child(self, args: list[str], *options: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = options
        request = {
            "arguments": args[1:],
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "has_terminal": p2cread != -1 and os.isatty(p2cread),
        }
        streams = [p2cread, c2pwrite, errwrite]
        given = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        status, telling = os.pipe()
        self._keeper.ask(request, [*given, telling])
        os.close(telling)
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode


def run(
    command: Sequence[object],
    *,
    input: str | None = None,
    timeout: float | None = None,
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end; it is killed if that takes too long."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.wait(), out, err)
    if check:
        done.check_returncode()
    return done


class Programs:
    """`python` and the commands of the product in a folder that a shell has on its path. Whatever it starts has to
    inherit `descriptor`. Pytest gets a new interpreter: it rewrites modules when they are imported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.descriptor = folder, shared_keeper().descriptor
        new = shlex.quote(sys.executable)
        warm = f"{new} -ES {shlex.quote(str(_PROGRAM))} {self.descriptor}"
        self._write("python", f'[ "$1 $2" = "-m pytest" ] && exec {new} "$@"\nexec {warm} "$@"')
        for name in _NAMES:
            self._write(name, f'exec {warm} {shlex.quote(str(Path(sys.executable).with_name(name)))} "$@"')

    def _write(self, name: str, commands: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{commands}\n")
        path.chmod(0o755)
