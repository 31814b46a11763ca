"""Pages of the events of a session, and the index by which they are found."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from amplifier_sessions import event_file
from amplifier_sessions.event_file import BLOCK_BYTES, EVENT_INDEX, EVENTS, EventFile
from amplifier_sessions.event_page import EventPlace

KINDS = (("INFO", "tool:pre"), ("INFO", "tool:post"), ("ERROR", "provider:error"))
TOOLS = EventPlace(7, offset=200, wants=lambda name: name.startswith("tool:"))


def an_event(seq: int, size: int = 1000) -> dict[str, Any]:
    level, name = KINDS[seq % 3]
    return {"seq": seq, "ts": "2026-01-01T00:00:00Z", "lvl": level, "event": name, "data": {"text": "x" * size}}


def write(directory: Path, events: list[dict[str, Any]], mode: str = "w") -> list[dict[str, Any]]:
    with (directory / EVENTS).open(mode) as file:
        file.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    return events


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of the events took."""
    taken: list[int] = []
    pread = event_file.os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        taken.append(len(data))
        return data

    monkeypatch.setattr(event_file.os, "pread", count)
    return taken


@pytest.mark.parametrize("head", [{"seq": 7}, {"seq": 7, "epoch": 2}])
def test_an_event_is_counted_by_its_head_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: dict[str, Any]
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(event_file, "parse_event", parsed.append)
    write(tmp_path, [{**head, **an_event(7)}] * (BLOCK_BYTES // 1000))

    assert EventFile(tmp_path).bring_up_to_date() >= BLOCK_BYTES
    assert parsed == []


def test_a_page_of_a_large_file_reads_little_of_it(tmp_path: Path, read_bytes: list[int]) -> None:
    events = write(tmp_path, [an_event(seq) for seq in range(1, 6000)])
    file = EventFile(tmp_path)
    file.bring_up_to_date()
    places = [
        EventPlace(10),
        EventPlace(10, from_end=True),
        EventPlace(10, offset=3000),
        EventPlace(10, after_seq=4321),
        EventPlace(10, level="ERROR", from_end=True),
        EventPlace(500, after_seq=4321, counted=False),
        TOOLS,
    ]

    for place in places:
        read_bytes.clear()
        page = file.read(place)
        wanted = place.page(events)
        assert page.events == wanted.events
        assert sum(read_bytes) < 4 * BLOCK_BYTES, place
        assert not place.counted or (page.total, page.has_more) == (wanted.total, wanted.has_more)


def test_a_page_costs_no_more_memory_in_a_larger_session(tmp_path: Path) -> None:
    write(tmp_path, [an_event(seq) for seq in range(1, 9000)])
    file = EventFile(tmp_path)

    tracemalloc.start()
    try:
        file.read(EventPlace(10, offset=8000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (tmp_path / EVENTS).stat().st_size > 9 << 20
    assert peak < 4 << 20


def test_what_was_appended_since_is_on_the_page(tmp_path: Path) -> None:
    events = write(tmp_path, [an_event(seq) for seq in range(1, 2000)])
    file = EventFile(tmp_path)
    file.read(EventPlace(1))
    events += write(tmp_path, [an_event(seq) for seq in range(2000, 4000)], "a")
    with (tmp_path / EVENTS).open("a") as torn:
        torn.write('{"seq":4000,"ts"')

    assert file.read(TOOLS).events == TOOLS.page(events).events
    assert file.read(EventPlace(3, from_end=True)).events == events[-3:]
    assert file.read(EventPlace(1)).total == 3999


@pytest.mark.parametrize(
    "spoil",
    [
        lambda index: index.write_bytes(b""),
        lambda index: index.write_bytes(b"no index\n"),
        lambda index: index.write_bytes(index.read_bytes()[:-30]),
        lambda index: index.write_bytes(index.read_bytes() + b'{"from":' + index.read_bytes()),
        lambda index: index.write_bytes(index.read_bytes().replace(b"tool:pre", b"tool:pr?")),
        lambda index: index.write_bytes(index.read_bytes().replace(b'"mark":', b'"mark":1')),
        lambda index: (index.unlink(), index.mkdir()),
    ],
)
def test_an_index_that_is_wrong_is_not_believed(tmp_path: Path, spoil: Any) -> None:
    events = write(tmp_path, [an_event(seq) for seq in range(1, 3000)])
    file = EventFile(tmp_path)
    file.bring_up_to_date()

    spoil(tmp_path / EVENT_INDEX)

    for place in (EventPlace(3, offset=2500), EventPlace(3000, wants=lambda name: name == "tool:pre"), TOOLS):
        assert file.read(place) == file.read(place)
        assert file.read(place).events == place.page(events).events


def test_an_index_of_other_events_is_made_anew(tmp_path: Path) -> None:
    write(tmp_path, [an_event(seq) for seq in range(1, 3000)])
    EventFile(tmp_path).bring_up_to_date()
    events = write(tmp_path, [an_event(seq, 900) for seq in range(1, 4000)])

    assert EventFile(tmp_path).read(EventPlace(5, offset=3500)).events == events[3500:3505]
    assert EventFile(tmp_path).read(EventPlace(5)).total == 3999


def test_lines_in_another_form_are_events_too_and_others_are_none(tmp_path: Path) -> None:
    lines = [
        '{"event": "b", "seq": 2, "lvl": 3}',
        "garbled",
        "[1]",
        "",
        '{"seq":null,"event":"c"}',
        '{"seq":4,"ts":"","lvl":"I","event":"é"}',
    ]
    (tmp_path / EVENTS).write_text("\n".join(lines) + "\n")

    page = EventFile(tmp_path).read(EventPlace(9))

    assert ([event["event"] for event in page.events], page.total) == (["b", "c", "é"], 3)
    assert EventFile(tmp_path).read(EventPlace(9, after_seq=2)).total == 1
    assert EventFile(tmp_path / "nothing").read(EventPlace(9)).total == 0


def test_events_are_read_where_no_index_can_be_written(tmp_path: Path) -> None:
    events = write(tmp_path, [an_event(seq) for seq in range(1, 2000)])
    tmp_path.chmod(0o500)
    try:
        page = EventFile(tmp_path).read(EventPlace(2, offset=1500))
    finally:
        tmp_path.chmod(0o700)

    assert (page.events, page.total) == (events[1500:1502], 1999)
