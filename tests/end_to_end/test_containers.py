"""A container that was killed comes back on the same volume, under another name and with processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from real_server import plan

from amplifierd.paths import Paths
from amplifierd.server.run_file import find_running

PATIENCE_S = 120.0
CONTAINER = ["unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


@contextmanager
def container(name: str, home: Path) -> Iterator[httpx2.Client]:
    """Serve a home in namespaces of its own; it is killed at the end."""
    serve = [sys.executable, "-m", "amplifierd", "--home", str(home), "serve", "--port", "0", "--offline"]
    command = [*CONTAINER, "sh", "-c", 'hostname "$0" && exec "$@"', name, *serve]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AMPLIFIER")}
    quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    paths, limit = Paths.from_environment(home, environ={}), time.monotonic() + PATIENCE_S
    try:
        while (running := find_running(paths)) is None:
            assert process.poll() is None, "the daemon ended"
            assert time.monotonic() < limit, "the daemon does not listen"
            time.sleep(0.02)
        headers = {"Authorization": f"Bearer {paths.token_file.read_text().strip()}"}
        with httpx2.Client(base_url=f"{running.url}/api/v1", headers=headers, timeout=PATIENCE_S) as api:
            while api.get(f"{running.url}/ready").status_code != 200:
                assert time.monotonic() < limit, "the daemon does not become ready"
                time.sleep(0.02)
            yield api
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while find_running(paths) is not None and time.monotonic() < limit:  # its first process ends last
            time.sleep(0.01)


def test_the_sessions_of_a_killed_container_are_those_of_the_next(tmp_path: Path) -> None:
    tried = subprocess.run([*CONTAINER, "hostname", "first"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces can be made here: {tried.stderr.decode().strip()}")
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    with container("first", home) as api:
        body = {"mount_plan": plan("One.", "Two."), "working_dir": str(work)}
        session = f"/sessions/{api.post('/sessions', json=body).raise_for_status().json()['session_id']}"
        api.post(f"{session}/execute", json={"prompt": "First"}).raise_for_status()

    with container("second", home) as api:
        assert api.post(f"{session}/resume").raise_for_status().json()["status"] == "active"
        ran = api.post(f"{session}/execute", json={"prompt": "Second"}).raise_for_status().json()
        assert ran["status"] == "completed"
        assert api.get(session).json()["turn_count"] == 2
