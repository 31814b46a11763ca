"""A cluster to try: a PostgreSQL of its own and a few daemons on loopback, which end together."""

from __future__ import annotations

import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import write_atomically
from amplifierd.paths import Paths
from amplifierd.server.run_file import RunningDaemon, find_running
from amplifierd.settings_file import edit_settings

from . import background

_LOOK_S = 0.5


@dataclass(frozen=True)
class Trial:
    """A running cluster: its store, its daemons, and a token that all of them take."""

    store: str
    homes: tuple[Paths, ...]
    daemons: tuple[RunningDaemon, ...]
    token: str

    def wait(self, tell: Callable[[str], None]) -> None:
        """Wait until every daemon has ended, and tell of each that does, or comes back."""
        running = dict.fromkeys(self.homes, True)
        while any(running.values()):
            time.sleep(_LOOK_S)
            for number, home in enumerate(self.homes, start=1):
                found = find_running(home)
                if running[home] != (found is not None):
                    running[home] = found is not None
                    tell(f"member {number} is back at {found.url}" if found else f"member {number} has ended")


@contextmanager
def trial(directory: Path | None, store: str | None, members: int) -> Iterator[Trial]:
    """Have a cluster while the block runs; in a directory that stays, or in one that is removed.

    Without `store` it has a PostgreSQL of its own.

    Raises:
        StoreUnavailableError: there is no PostgreSQL to start.
        StartFailedError: a daemon did not start.
    """
    with ExitStack() as stack:
        stack.enter_context(_terminable())
        made = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amplifier-cluster-")))
        make_directory(made)
        made.chmod(0o711)  # PostgreSQL may run as another user
        if store is None:
            from amplifierd.store.postgres.local_server import LocalServer  # an extra

            server = LocalServer(made / "postgres")
            stack.callback(server.stop)
            server.start()
            store = server.address()
        homes = tuple(Paths.from_environment(made / f"member{number}", {}) for number in range(1, members + 1))
        token = f"{secrets.token_urlsafe(48)}\n".encode()
        for home in homes:
            _prepare(home, store, token)
            stack.callback(background.stop, home)
        with ThreadPoolExecutor() as pool:
            daemons = tuple(pool.map(_start, homes))
        yield Trial(store, homes, daemons, homes[0].token_file.read_text(encoding="utf-8").strip())


def _prepare(home: Paths, store: str, token: bytes) -> None:
    """Have a home that belongs to the cluster; one that was tried before keeps what it has, and where it belongs."""
    for directory in (home.home, home.config):
        make_directory(directory)
    home.settings_file.touch(mode=0o600)
    edit_settings(home.settings_file, {"store": store}, locks_dir=home.locks)
    if not home.cluster_token_file.exists():
        write_atomically(home.cluster_token_file, token, private=True)


def _start(home: Paths) -> RunningDaemon:
    return background.start(home, ["--home", str(home.home), "serve", "--port", "0"])


@contextmanager
def _terminable() -> Iterator[None]:
    """Let the block end in good order when the process is asked to end."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
