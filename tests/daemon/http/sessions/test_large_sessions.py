"""What a request about a large session costs the daemon: as much as what is asked for, not as much as there is."""

from __future__ import annotations

import asyncio
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from real_server import RealServer, read_events

from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord, now

MIB = 1 << 20
SIZE = 12 * MIB


def an_event(seq: int) -> dict[str, Any]:
    return {"seq": seq, "ts": now(), "lvl": "INFO", "event": "tool:post", "data": {"text": "x" * 4200}}


async def store_away(server: RealServer, new: NewSession) -> None:
    """Store a session as another process does: the daemon has heard of none of its events."""
    store = FileStore(server.home.paths)
    await store.add(new, Holder.of_this_process("test"))
    await store.close()


@pytest.fixture
def large(server: RealServer, admin: httpx2.Client, work: Path) -> Iterator[tuple[str, int]]:
    """A session with many events, and the number of the last one."""
    last = SIZE // 4200
    events = (an_event(seq) for seq in range(1, last + 1))
    record = SessionRecord(session_id=f"large-{uuid.uuid4().hex}", working_dir=str(work), created_at=now())
    asyncio.run(store_away(server, NewSession(record, {"session": {}}, events=[*events])))
    session_id, seq = record.session_id, last
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


@pytest.mark.parametrize("asked", [{"after": 0}, {"replay": 10}])
def test_a_stream_that_begins_long_ago_comes_a_part_at_a_time(
    admin: httpx2.Client, large: tuple[str, int], asked: dict[str, int]
) -> None:
    session_id, last = large
    wanted = 20 if "after" in asked else 11

    with memory_below(SIZE // 2), admin.stream("GET", f"/sessions/{session_id}/stream", params=asked) as response:
        seen = [event.data["sequence"] for _, event in zip(range(wanted), read_events(response), strict=False)]

    if "after" in asked:
        assert seen == list(range(1, wanted + 1))
    else:
        assert seen[1:] == list(range(last - 9, last + 1))


@pytest.mark.parametrize("asked", ["offset", "after_seq"])
def test_the_last_events_are_a_page_like_the_first(admin: httpx2.Client, large: tuple[str, int], asked: str) -> None:
    session_id, last = large

    with memory_below(SIZE // 2):
        page = admin.get(f"/sessions/{session_id}/events", params={"limit": 100, asked: last - 10}).json()

    assert [one["seq"] for one in page["events"]] == list(range(last - 9, last + 1))
    assert not page["has_more"]


def test_a_stream_that_goes_on_near_the_end_reads_what_is_left(admin: httpx2.Client, large: tuple[str, int]) -> None:
    session_id, last = large

    path = f"/sessions/{session_id}/stream"
    with memory_below(SIZE // 4), admin.stream("GET", path, headers={"Last-Event-ID": str(last - 10)}) as response:
        seen = [event.data["sequence"] for _, event in zip(range(10), read_events(response), strict=False)]

    assert seen == list(range(last - 9, last + 1))


def test_a_session_is_listed_and_shown_without_its_events(admin: httpx2.Client, large: tuple[str, int]) -> None:
    session_id, _ = large

    with memory_below(SIZE // 4):
        listed = admin.get("/sessions", params={"limit": 5}).json()["sessions"]
        shown = [admin.get(f"/sessions/{session_id}{of}").status_code for of in ("", "/messages")]

    assert session_id in [one["session_id"] for one in listed]
    assert shown == [200, 200]
