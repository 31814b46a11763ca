"""The keeper of `warm_python`: a process that has imported much, does nothing, and is forked for each call."""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import termios
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn, TextIO

from kill_points import import_modules_of
from pydantic import BaseModel

_MOST_BYTES = 1 << 20
_STATUS_FD = 3  # after stdin, stdout and stderr
_PROGRAMS = (
    *("amplifier_cli.main", "amplifier_cli.chat.start", "amplifierd.control.main", "amplifierd.app", "uvicorn"),
    *("amplifierd.store.postgres.store", "amplifierd.turns.durable.durable_turn_queue"),
)
_CHOOSES_WHEN_IMPORTED = "keyring"


def _await_call(channel: socket.socket) -> dict[str, Any]:
    """Fork for each call, and return it in the process that was forked for it. The keeper itself never returns."""
    calls: dict[int, int] = {}  # by its process, where the end of a call is told
    ended, ending = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(ending)
    while True:
        ready, _, _ = select.select([channel, ended], [], [])
        if ended in ready:
            os.read(ended, _MOST_BYTES)
            _tell_ends(calls)
        if channel not in ready:
            continue
        message, descriptors, *_ = socket.recv_fds(channel, _MOST_BYTES, _STATUS_FD + 1)
        if not message:
            os._exit(0)
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (ended, ending, *calls.values()):
                os.close(descriptor)
            channel.close()
            if "packages" not in request:
                return _begin_call(request, descriptors)
            _share(*request["packages"])
            return _await_call(socket.socket(fileno=descriptors[0]))
        if "packages" not in request:
            calls[pid] = descriptors.pop()
            _tell(calls[pid], pid)
        for descriptor in descriptors:
            os.close(descriptor)


def _tell_ends(calls: dict[int, int]) -> None:
    """Tell how those of the forked processes that have ended did so."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            telling = calls.pop(ended[0], None)
            if telling is not None:
                _tell(telling, os.waitstatus_to_exitcode(ended[1]))
                os.close(telling)


def _tell(telling: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the caller is gone
        os.write(telling, f"{number}\n".encode())


def _begin_call(request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Have the streams and the terminal of a call, in a session of its own."""
    *standard, telling = descriptors
    os.close(telling)
    os.setsid()
    for target, descriptor in enumerate(standard):
        os.dup2(descriptor, target)
    for descriptor in standard:
        os.close(descriptor)
    if request["has_terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    return request


def _be_python(arguments: list[str], cwd: str, environment: dict[str, str]) -> NoReturn:
    """Do what `python` does with its arguments, and end."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the environment may name another
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
    what, *rest = arguments
    path = {"-c": "", "-m": cwd}.get(what, str(Path(what).resolve().parent))
    sys.path[:1] = [path, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    code: object = 0
    try:
        with suppress(ImportError):
            importlib.import_module("sitecustomize")
        _run(what, rest)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - whatever the program did not catch
        sys.excepthook(*sys.exc_info())
        code = 1
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # ends the pools and waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)  # as an interpreter ends, but without taking the modules apart, which are the keeper's


def _run(what: str, rest: list[str]) -> None:
    if what == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif what == "-c":
        program = sys.modules["__main__"] = ModuleType("__main__")
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), vars(program))
    else:
        sys.argv = [what, *rest]
        runpy.run_path(what, run_name="__main__")


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
    """Import what the command imports to answer and to talk at a terminal, and what a daemon imports."""
    with tempfile.TemporaryDirectory() as folder:

        def act() -> None:
            os.environ.update(AMPLIFIERD_HOME=f"{folder}/home", AMPLIFIERD_OFFLINE="1", HOME=folder)
            work = Path(folder, "work")  # no session works in a home directory
            work.mkdir()
            os.chdir(work)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            for name in _PROGRAMS:
                importlib.import_module(name)
            if code := sys.modules["amplifier_cli.main"].main(["run", "List files"]):
                raise RuntimeError(f"the command ended with {code}")

        import_modules_of(act)


def _share(*packages: str) -> None:
    """Import packages, and share with the calls all that is imported."""
    for package in packages:
        importlib.import_module(package)
    for name in [name for name in sys.modules if name.partition(".")[0] == _CHOOSES_WHEN_IMPORTED]:
        del sys.modules[name]
    _complete(BaseModel)
    gc.freeze()  # it is shared as long as nothing looks through it


def _complete(model: type[BaseModel]) -> None:
    """Build the models that are built when they are used."""
    for each in model.__subclasses__():
        if each.__pydantic_complete__ is False:
            each.model_rebuild(raise_errors=False)
        _complete(each)


if __name__ == "__main__":
    _import_everything()
    _share()
    call = _await_call(socket.socket(fileno=int(sys.argv[1])))
    _be_python(call["arguments"], call["cwd"], call["environment"])
