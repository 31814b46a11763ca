"""The daemon's log: each line says which request and which session it is about."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from amplifierd import open_home
from amplifierd.app import create_app
from amplifierd.server import log_files
from amplifierd.server.log_files import DaemonLog, log_also_about, logging_about
from amplifierd.sessions.secret_values import SecretValues

logger = logging.getLogger("amplifierd.test")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DaemonLog]:
    home = open_home(tmp_path / "home")
    log = DaemonLog(home.paths.logs, home.sessions.runtime.secrets, level="info", as_json=True, echo=False)
    yield log
    log.close()


def lines_of(log: DaemonLog) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.file.read_text().splitlines()]


def test_a_closed_log_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    home = open_home(tmp_path / "home")

    DaemonLog(home.paths.logs, home.sessions.runtime.secrets, level="debug", as_json=False, echo=True).close()

    assert (root.level, list(root.handlers)) == before


def test_a_line_of_a_request_carries_its_id(log: DaemonLog, tmp_path: Path) -> None:
    with TestClient(create_app(home=open_home(tmp_path / "home"))) as client:
        client.get("/api/v1/auth/me", headers={"X-Request-Id": "mine-7"})

    said = {line["message"]: line.get("request_id") for line in lines_of(log)}
    assert said.pop("GET /api/v1/auth/me was refused: a token is needed") == "mine-7"
    assert set(said.values()) == {None}


async def test_tasks_speak_about_what_they_were_begun_for_until_it_is_over(log: DaemonLog) -> None:
    may_go_on = asyncio.Event()

    async def work() -> None:
        logger.info("during")
        await may_go_on.wait()
        logger.info("after")

    with logging_about(request_id="r1"):
        log_also_about(session_id="s1")
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
    may_go_on.set()
    await task

    said = {line["message"]: (line.get("request_id"), line.get("session_id")) for line in lines_of(log)}
    assert said == {"during": ("r1", "s1"), "after": (None, None)}


def test_every_file_is_for_its_owner_alone_also_after_it_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_LARGEST", 200)
    before = os.umask(0o022)
    try:
        log = DaemonLog(tmp_path, SecretValues(), level="info", as_json=False, echo=False)
        for _ in range(5):
            logger.warning("a line of some length, so that a few of them fill the file")
        log.close()
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("daemon.log*")}
    assert len(modes) > 2
    assert set(modes.values()) == {0o600}
