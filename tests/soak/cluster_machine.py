"""A daemon as if it had a machine of its own: its name, its clock, its way to the database, and its life."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import warm_python
import yaml
from daemon_process import DaemonProcess
from database_pair import DatabasePair
from hurt_daemon import CLOCK
from processes import Started
from tcp_proxy import ProxyProcess

from amplifierd.store.postgres.local_server import DATABASE

_PAUSE_S = 0.01
_ROUNDS = 50
_SERVERS = 2
_PATIENCE_S = 60.0


class ClusterMachine(DaemonProcess):
    """Reaches the database through proxies, one for each server, and writes under a role of its own after each start.

    `is_up` while it can answer; whoever asks it then may still get no answer.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        databases: DatabasePair,
        settings: Mapping[str, Any],
        *,
        token: str,
        clock_s: float = 0.0,
    ) -> None:
        """Have a home below `place`, the cluster's `token`, and a clock that is wrong by `clock_s`."""
        self.name, self.is_up, self.role = name, False, ""
        self._databases, self._settings = databases, dict(settings)
        self._starts = 0
        self._started: Started | None = None
        self.proxies = [ProxyProcess(databases.primary.port) for _ in range(_SERVERS)]
        environment = {"AMPLIFIERD_CLUSTER__TOKEN": token, "OTHER_HOST": name}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(CLOCK), os.environ.get("PYTHONPATH"))))
        keeper: warm_python.Keeper | None = warm_python.shared_keeper()
        if clock_s:
            clock = place / f"{name}.clock"
            clock.write_text(str(clock_s))
            environment["SHIFTED_CLOCK"] = str(clock)
            keeper = None  # what was imported before has the right clock
        super().__init__(place / name, {}, environment=environment, keeper=keeper)

    def start(self) -> None:
        self._starts += 1
        self.role = f"{self.name}_{self._starts}"
        self._databases.add_role(self.role)
        marker = f"AMPLIFIER_CHILD_{uuid.uuid4().hex}"
        self._started = Started(marker)
        self._environment[marker] = "1"
        places = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        store = f"postgresql://{self.role}:{self._databases.password}@{places}/{DATABASE}"
        self._paths.settings_file.write_text(yaml.safe_dump(self._settings | {"store": store}))
        super().start()
        self.is_up = True

    def lose_power(self) -> None:
        """End it with everything that it started, all at once."""
        self.is_up = False
        self._signal_all(signal.SIGKILL)
        self._wait()

    def freeze(self) -> None:
        """Let none of its processes do anything, as a machine that swaps, or is moved, does."""
        self.is_up = False
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)
        self.is_up = True

    def drain(self) -> None:
        """Have it give up what it has, and wait until it has nothing left."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx2.Client(base_url=f"{self.url}/api/v1/cluster", headers=headers, timeout=_PATIENCE_S) as client:
            own = client.get("").raise_for_status().json()["member_id"]
            client.post(f"/members/{own}/drain").raise_for_status()
            limit = time.monotonic() + _PATIENCE_S
            while (left := [one for one in _members(client, own) if one["holds"]]) and time.monotonic() < limit:
                time.sleep(10 * _PAUSE_S)
            assert not left, f"{self.name} still has sessions: {left}\n{self.log_tail()}"

    def stop(self) -> None:
        self.is_up = False
        super().stop()

    def close(self) -> None:
        """End it, and its proxies, whatever state it is in."""
        if self._started is not None:
            self.lose_power()
        for proxy in self.proxies:
            proxy.close()

    def _signal_all(self, number: signal.Signals) -> None:
        """Reach every process, also those that are being started."""
        assert self._started is not None
        reached: set[int] = set()
        for _ in range(_ROUNDS):
            new = {self.pid, *self._started.pids()} - reached
            if not new:
                return
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            reached |= new
            time.sleep(_PAUSE_S)

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(10)


def _members(client: httpx2.Client, member_id: str) -> list[dict[str, Any]]:
    """Return what the cluster says of a member."""
    return [one for one in client.get("").json()["members"] if one["member_id"] == member_id]
