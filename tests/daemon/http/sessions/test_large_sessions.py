"""What a request about a large session costs the daemon: as much as what is asked for, not as much as there is."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from real_server import RealServer
from session_requests import create

MIB = 1 << 20
SIZE = 12 * MIB


@pytest.fixture
def large(server: RealServer, admin: httpx2.Client, work: Path) -> Iterator[tuple[str, int]]:
    """A session with many events, and the number of the last one."""
    session_id = create(admin, work)
    file = server.home.paths.sessions / session_id / "events.jsonl"
    seq = json.loads(file.read_text().splitlines()[-1])["seq"]
    with file.open("a") as events:
        while events.tell() < SIZE:
            seq += 1
            event = {"seq": seq, "ts": "2026-01-01T00:00:00Z", "lvl": "INFO", "event": "tool:post"}
            line = {**event, "session_id": session_id, "data": {"text": "x" * 4000}}
            events.write(json.dumps(line, separators=(",", ":")) + "\n")
    yield session_id, seq
    assert admin.delete(f"/sessions/{session_id}").status_code == 204


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MIB:.1f} MiB"


@pytest.mark.parametrize("asked", [{}, {"offset": 2000}, {"after_seq": 2500}, {"event_type": "tool:", "offset": 2500}])
def test_a_page_of_events_is_all_that_is_held_of_them(
    admin: httpx2.Client, large: tuple[str, int], asked: dict[str, str | int]
) -> None:
    session_id, last = large

    with memory_below(SIZE // 2):
        page = admin.get(f"/sessions/{session_id}/events", params={"limit": 10, **asked}).json()

    passed = int(asked.get("after_seq") or 0)
    assert (len(page["events"]), page["has_more"]) == (10, True)
    assert page["total"] >= last - passed - 10
    assert [one["seq"] for one in page["events"]] == sorted(one["seq"] for one in page["events"])
