"""A session's files, and its event log cut at a moment."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.session import (
    backup,
    count_events,
    get_event_summary,
    get_last_timestamp_for_turn,
    load_metadata,
    load_transcript,
    load_transcript_with_lines,
    read_jsonl,
    slice_events_for_fork,
    slice_events_to_timestamp,
    write_jsonl,
    write_metadata,
    write_transcript,
)


def test_lines_are_compact_and_letters_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"

    write_jsonl(path, [{"a": "größe", "b": [1]}, {}])

    assert path.read_text(encoding="utf-8") == '{"a":"größe","b":[1]}\n{}\n'


def test_blank_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a":1}\n\nbroken\n[1]\n\xff\n{"b":2}\n{"torn": ')

    assert list(read_jsonl(path)) == [{"a": 1}, {"b": 2}]


def test_a_transcript_knows_its_lines(tmp_path: Path) -> None:
    (tmp_path / "transcript.jsonl").write_text('{"role":"user"}\n\n{"role":"tool"}\n', encoding="utf-8")

    assert [entry["line_num"] for entry in load_transcript_with_lines(tmp_path)] == [1, 3]
    assert load_transcript(tmp_path) == [{"role": "user"}, {"role": "tool"}]
    (tmp_path / "transcript.jsonl").write_text('{"role":"user"}\n{torn\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        load_transcript_with_lines(tmp_path)


def test_metadata_is_readable_json_and_keeps_every_key(tmp_path: Path) -> None:
    write_metadata(tmp_path / "s", {"session_id": "s", "eigenes": "ü"})

    text = (tmp_path / "s" / "metadata.json").read_text(encoding="utf-8")
    assert text == '{\n  "session_id": "s",\n  "eigenes": "ü"\n}\n'
    assert load_metadata(tmp_path / "s") == {"session_id": "s", "eigenes": "ü"}


def test_a_backup_lies_beside_its_file(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    assert backup(path, "repair") is None

    write_transcript(tmp_path, [{"a": 1}])
    copy = backup(path, "repair")

    assert copy is not None
    assert copy.name.startswith("transcript.jsonl.bak-repair-2")
    assert copy.read_bytes() == path.read_bytes()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    write_jsonl(
        path,
        [
            {"event": "a", "ts": "2026-01-01T10:00:00Z", "session_id": "old"},
            {"event": "b", "timestamp": "2026-01-01T10:00:01.500+00:00", "session_id": "old"},
            {"event": "b", "ts": "2026-01-01T10:00:02+0000"},
            {"event": "naive", "ts": "2026-01-01T10:00:03"},
            {"note": "without time"},
        ],
    )
    return path


@pytest.mark.parametrize(
    ("cutoff", "kept"),
    [("2026-01-01T10:00:01.500Z", 3), ("2026-01-01T11:00:02+01:00", 4), ("2026-01-01T10:00:03", 5), ("2025-01-01", 1)],
)
def test_events_up_to_a_moment_are_copied(log: Path, tmp_path: Path, cutoff: str, kept: int) -> None:
    assert slice_events_to_timestamp(log, cutoff, tmp_path / "out.jsonl") == kept
    assert count_events(tmp_path / "out.jsonl") == kept


def test_copied_events_belong_to_the_new_session(log: Path, tmp_path: Path) -> None:
    slice_events_to_timestamp(log, "2027-01-01", tmp_path / "out.jsonl", "new")

    events = list(read_jsonl(tmp_path / "out.jsonl"))
    assert {event["session_id"] for event in events} == {"new"}
    assert [event.get("parent_session_id") for event in events] == ["old", "old", None, None, None]


def test_a_missing_log_and_a_bad_moment_are_errors(log: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        slice_events_to_timestamp(tmp_path / "none.jsonl", "2026-01-01", tmp_path / "out.jsonl")
    with pytest.raises(ValueError, match="yesterday"):
        slice_events_to_timestamp(log, "yesterday", tmp_path / "out.jsonl")
    assert count_events(tmp_path / "none.jsonl") == 0


def test_a_log_is_summarised(log: Path, tmp_path: Path) -> None:
    assert get_event_summary(log) == {
        "total_events": 5,
        "event_types": {"a": 1, "b": 2, "naive": 1, "unknown": 1},
        "first_timestamp": "2026-01-01T10:00:00Z",
        "last_timestamp": "2026-01-01T10:00:03",
    }
    assert get_event_summary(tmp_path / "none.jsonl")["total_events"] == 0


def test_events_are_cut_at_the_end_of_a_turn(log: Path, tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "1", "timestamp": "2026-01-01T10:00:00Z"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "2"},
    ]
    write_transcript(tmp_path, messages)
    transcript = tmp_path / "transcript.jsonl"

    assert get_last_timestamp_for_turn(transcript, 1) == "2026-01-01T10:00:00Z"
    assert get_last_timestamp_for_turn(transcript, 2) is None
    assert slice_events_for_fork(log, transcript, 1, tmp_path / "one.jsonl") == 2
    assert slice_events_for_fork(log, transcript, 2, tmp_path / "two.jsonl") == 0
    assert (tmp_path / "two.jsonl").read_bytes() == b""
    with pytest.raises(ValueError, match="3"):
        get_last_timestamp_for_turn(transcript, 3)
    with pytest.raises(FileNotFoundError):
        get_last_timestamp_for_turn(tmp_path / "none.jsonl", 1)


def test_what_is_written_can_be_read_by_any_tool(tmp_path: Path) -> None:
    write_transcript(tmp_path, [{"role": "user", "content": "line\nbreak\u2028"}])

    [line] = (tmp_path / "transcript.jsonl").read_bytes().decode().split("\n")[:-1]
    assert json.loads(line) == {"role": "user", "content": "line\nbreak\u2028"}
