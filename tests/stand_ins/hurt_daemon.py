"""A daemon as a process with which everything can go wrong: its disk, its home, its clock, its life."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from daemon_process import DaemonProcess

CLOCK = Path(__file__).parent / "other_machine"
PATIENCE_S = 60.0
_DROP_CAPABILITY = 24  # PR_CAPBSET_DROP


class HurtDaemon(DaemonProcess):
    """A daemon with a home below `place`; permissions bind it, also where root runs it."""

    def __init__(self, place: Path, *, variables: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.place, self.home = place, place / "home"
        self._clock, self._imported = place / "clock", place / "imported"
        self._imported.mkdir()
        self._clients: list[httpx2.Client] = []
        environment = {"HOME": str(place), "SHIFTED_CLOCK": str(self._clock), "IMPORTED": str(self._imported)}
        environment |= variables or {}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(CLOCK), os.environ.get("PYTHONPATH"))))
        privileged = os.geteuid() == 0
        super().__init__(
            self.home, settings, environment=environment, before_start=_give_up_privileges if privileged else None
        )

    def folder(self, name: str) -> Path:
        """Return a new working directory."""
        folder = self.place / "work" / name
        folder.mkdir(parents=True)
        return folder

    def client(self, token: str | None = None) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        self._clients.append(httpx2.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=PATIENCE_S))
        return self._clients[-1]

    def workers(self) -> list[int]:
        """Return the pids of the workers."""
        return [one["pid"] for one in self.client().get("/workers").json()["workers"]]

    def imported(self, pid: int) -> set[str]:
        """Return the packages of modules that a process of this daemon has imported."""
        written = self._imported / str(pid)
        return {*written.read_text().split()} if written.exists() else set()

    def kill(self, *, with_workers: bool = False) -> None:
        """End it as a power failure does."""
        for pid in self.workers() if with_workers else ():
            os.kill(pid, signal.SIGKILL)
        super().kill()

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        super().stop()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Let the daemon and what it starts make no file longer than it is, as on a disk that takes nothing more."""
        before = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        self._limit_files((0, before[1]))
        try:
            yield
        finally:
            self._limit_files(before)

    def _limit_files(self, limits: tuple[int, int]) -> None:
        for pid in (self.pid, *self._children()):
            with suppress(ProcessLookupError):  # a worker may have ended
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    def _children(self) -> list[int]:
        """Return the pids of the workers, and of what further ones come from."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    @contextmanager
    def read_only_home(self) -> Iterator[None]:
        """Let nobody change anything in the home."""
        before = {path: path.stat().st_mode for path in (self.home, *self.home.rglob("*")) if not path.is_symlink()}
        for path in before:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            yield
        finally:
            for path, mode in before.items():
                path.chmod(mode)

    def set_clock(self, seconds: float) -> None:
        """Have the clock of the daemon and its workers be wrong by so much."""
        self._clock.write_text(str(seconds))


@contextmanager
def hurt_daemon(place: Path, **settings: Any) -> Iterator[HurtDaemon]:
    """Serve a home below `place`, which is removed in the end."""
    with HurtDaemon(place, **settings) as daemon:
        yield daemon
    shutil.rmtree(place)


def until(condition: Callable[[], Any]) -> None:
    """Wait until something outside of this process has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _give_up_privileges() -> None:
    """Let what is executed next obey permissions, although it belongs to root."""
    system = ctypes.CDLL(None)
    for capability in range(64):
        system.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
