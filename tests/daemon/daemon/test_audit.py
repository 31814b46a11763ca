"""The audit log is private, and bounded: a full file makes room for the next, and the oldest goes."""

from __future__ import annotations

import json
from pathlib import Path

from amplifierd.server import log_files
from amplifierd.server.log_files import KEPT, AuditLog


def test_a_full_file_makes_room_for_the_next(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "logs/audit.jsonl")
    large = "x" * (log_files.MAX_BYTES // 2)

    for number in range(3 * (KEPT + 2)):
        log.record(number=number, padding=large)
    log.close()

    files = sorted((tmp_path / "logs").iterdir())
    kept = [path.name for path in files]
    assert kept == sorted(["audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, KEPT + 1))])[: len(kept)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    numbers = [json.loads(line)["number"] for path in files for line in path.read_text().splitlines()]
    assert sorted(numbers) == list(range(min(numbers), 3 * (KEPT + 2)))


def test_a_disk_that_takes_nothing_stops_no_request(tmp_path: Path, caplog: object) -> None:
    (tmp_path / "logs").write_text("not a directory")

    AuditLog(tmp_path / "logs/audit.jsonl").record(path="/api/v1/sessions", status=201)
