"""Which daemon serves a home: one at a time, found by the file that it leaves in `state/run`, never by its name."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import PRIVATE
from amplifierd.exceptions import FormatUnsupportedError, HomeInUseError
from amplifierd.os_errors import USE_LOCKS
from amplifierd.paths import Paths
from amplifierd.store.hold import Holder
from amplifierd.store.process_locks import DAEMON_LOCK, begin_incarnation
from amplifierd.store.record import now
from amplifierd.stored_json import StoredFormat

_FORMAT = StoredFormat(private=True)
_PATIENCE_S = 0.2


@dataclass(frozen=True)
class RunningDaemon:
    """A daemon that runs: its process, where it listens, since when, and the options that it was given.

    `boot_id` is what its events are numbered by; on a Unix socket it has no port.
    """

    process: Holder
    boot_id: str
    host: str
    port: int | None
    url: str
    uds: str | None
    version: str
    started_at: str
    options: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.process.pid, **asdict(self), "process": self.process.facts()}


def run_file(paths: Paths) -> Path:
    return paths.run / "daemon.json"


def find_running(paths: Paths) -> RunningDaemon | None:
    """Return the daemon that serves a home, None when there is none; a file that a dead one left counts for nothing."""
    if not _is_served(paths):
        return None
    try:
        value = _FORMAT.read(run_file(paths))
    except (OSError, ValueError, FormatUnsupportedError):
        return None
    if value is None:
        return None
    try:
        known = {name: value[name] for name in ("boot_id", "host", "port", "url", "uds", "version", "started_at")}
        options = tuple(value.get("options", ()))
        return RunningDaemon(process=Holder(**value["process"]), options=options, **known)
    except (KeyError, TypeError):
        return None


def write_run_file(
    paths: Paths,
    *,
    boot_id: str,
    host: str,
    port: int | None,
    url: str,
    uds: str | None,
    version: str,
    options: tuple[str, ...] = (),
) -> RunningDaemon:
    """Say that this process serves a home."""
    process = Holder.of_this_process("daemon")
    running = RunningDaemon(process, boot_id, host, port, url, uds, version, now(), options)
    _FORMAT.write(run_file(paths), running.to_dict())
    return running


def home_in_use(paths: Paths, other: RunningDaemon | None) -> HomeInUseError:
    """Return the error for a daemon that is to serve a home which another one serves."""
    who, where = (f" (pid {other.process.pid})", f" at {other.url}") if other else ("", "")
    hint = "stop it first: amplifierd stop; or name another --home"
    return HomeInUseError(f"another amplifierd{who} uses {paths.home}{where}", hint=hint)


@contextmanager
def serving(paths: Paths) -> Iterator[str]:
    """Be the one daemon of a home while the block runs, under the incarnation that is yielded.

    The system frees the lock of a daemon that dies; no process that is forked from it keeps the lock.

    Raises:
        HomeInUseError: another daemon serves it.
    """
    make_directory(paths.run)
    descriptor = os.open(_lock_file(paths), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        _lock(descriptor, paths)
        _held.add(descriptor)
        run_file(paths).unlink(missing_ok=True)  # of a daemon that was killed, which is not where this one listens
        try:
            yield begin_incarnation(descriptor)
        finally:
            run_file(paths).unlink(missing_ok=True)
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


_held: set[int] = set()


def _let_go() -> None:
    """Keep no lock of the process that this one was forked from."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


def _lock(descriptor: int, paths: Paths) -> None:
    """Lock a home for this process; one that only asks whether there is a daemon has it for a moment."""
    limit = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                raise home_in_use(paths, find_running(paths)) from None
            time.sleep(_PATIENCE_S / 20)
        except OSError as error:
            raise HomeInUseError(
                f"{paths.run} cannot be locked, so two daemons could serve this home: {error}",
                hint=USE_LOCKS,
            ) from error
        else:
            return


def _is_served(paths: Paths) -> bool:
    """True while a daemon has the home locked; of a file system without locks it is assumed."""
    try:
        descriptor = os.open(_lock_file(paths), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _lock_file(paths: Paths) -> Path:
    return paths.run / DAEMON_LOCK
