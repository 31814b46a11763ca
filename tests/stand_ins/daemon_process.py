"""The real daemon as a process: `amplifierd serve`, on a free port of loopback, with a home that is given.

It stays away from the network, also from that of this machine, unless its settings say otherwise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import warm_python
import yaml

from amplifierd.paths import Paths
from amplifierd.server.log_files import LOG_FILE
from amplifierd.server.run_file import find_running

_PATIENCE_S = 120.0
_PAUSE_S = 0.005


class DaemonProcess:
    """Serves a home while the block runs. `ready_s` is how long its last start took until it was ready.

    It has `environment` beside that of this process, and calls `before_start` between fork and exec. If there is a
    `keeper`, that forks it instead. `python` may be the interpreter of another checkout.
    """

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        before_start: Callable[[], None] | None = None,
        keeper: warm_python.Keeper | None = None,
        python: str = sys.executable,
    ) -> None:
        self._paths = Paths.from_environment(home)
        self._environment, self._before_start, self._keeper = dict(environment or {}), before_start, keeper
        self._flags = ["--port", "0", *(["--offline"] if (settings or {}).get("offline", True) else [])]
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.ready_s = 0.0
        if settings is not None:
            for directory in (self._paths.home, self._paths.config):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._paths.settings_file.write_text(yaml.safe_dump(dict(settings)))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def token(self) -> str:
        return self._paths.token_file.read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        begun = time.perf_counter()
        command = [self._python, "-m", "amplifierd", "--home", str(self._paths.home), "serve"]
        dropped = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        environment["AMPLIFIER_HOME"] = str(self._paths.home / "ecosystem")  # no sessions of other applications
        options: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
        options |= {"env": {**environment, **self._environment}, "preexec_fn": self._before_start}
        command += self._flags
        self._process = (
            warm_python.Popen(command, keeper=self._keeper, **options)
            if self._keeper
            else subprocess.Popen(command, **options)
        )
        while (running := find_running(self._paths)) is None or running.process.pid != self._process.pid:
            self._check(begun)
        self.url = running.url
        while not self._is_ready():
            self._check(begun)
        self.ready_s = time.perf_counter() - begun

    def log_tail(self, lines: int = 80) -> str:
        """Return the end of its log, which says why it did not do what it should."""
        path = self._paths.logs / LOG_FILE
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "no log"

    def kill(self) -> None:
        """End it as a crash would; its workers end by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def stop(self) -> None:
        """Let it end, at once if it takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/ready", timeout=_PATIENCE_S):
                return True
        except OSError:  # it does not listen yet, or says that it is not ready
            return False

    def _check(self, begun: float) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self._process.returncode}")
        if time.perf_counter() - begun > _PATIENCE_S:
            raise AssertionError("the daemon did not become ready")
        time.sleep(_PAUSE_S)
