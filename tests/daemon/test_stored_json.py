"""Files that outlive a version: older ones are migrated, newer ones refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.stored_json import StoredFormat


def rename(value: dict[str, Any]) -> dict[str, Any]:
    return {"new": value["old"]}


def double(value: dict[str, Any]) -> dict[str, Any]:
    return {"new": value["new"] * 2}


def names(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "things.lock"


def test_what_is_written_is_read(file: Path) -> None:
    StoredFormat(1).write(file, {"text": "ü", "number": 1})

    assert file.read_text() == '{\n  "format_version": 1,\n  "text": "ü",\n  "number": 1\n}\n'
    assert StoredFormat(1).read(file) == {"format_version": 1, "text": "ü", "number": 1}
    assert names(file) == ["things.lock"]
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_missing_file_is_nothing(file: Path) -> None:
    assert StoredFormat(1).read(file) is None
    assert not file.parent.exists()


def test_an_older_file_is_backed_up_and_migrated_step_by_step(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"old": 2}')
    stored = StoredFormat(3, {0: rename, 2: double})

    assert stored.read(file) == {"new": 4, "format_version": 3}

    assert file.with_name("things.lock.v0.bak").read_text() == '{"old": 2}'
    assert json.loads(file.read_text()) == {"new": 4, "format_version": 3}
    assert stored.read(file) == {"new": 4, "format_version": 3}
    assert names(file) == ["things.lock", "things.lock.v0.bak"]


def test_a_newer_file_is_refused_by_name_and_left_alone(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"format_version": 9}')

    with pytest.raises(FormatUnsupportedError) as refused:
        StoredFormat(3).read(file)

    assert refused.value.message == f"{file} has format 9, this version reads up to 3"
    assert file.read_text() == '{"format_version": 9}'
    assert names(file) == ["things.lock"]


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"format_version": "1"}', '{"format_version": true}', "\xff"])
def test_what_is_no_stored_object_is_a_value_error(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_bytes(content.encode("latin-1"))

    with pytest.raises(ValueError):  # noqa: PT011 - the text is that of whoever found it
        StoredFormat(1).read(file)

    assert file.read_bytes() == content.encode("latin-1")
