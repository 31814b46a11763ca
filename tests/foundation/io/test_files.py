"""Files: retries, and writes that are whole or not at all."""

import errno
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.io import read_with_retry, write_with_backup, write_with_retry


class Flaky(type(Path())):  # type: ignore[misc]
    """A path whose folder is being synced: reading fails a few times."""

    failures: list[int]

    def read_text(self, *args: Any, **kwargs: Any) -> str:
        if self.failures:
            raise OSError(self.failures.pop(), "synced")
        text: str = super().read_text(*args, **kwargs)
        return text


@pytest.fixture
def flaky(tmp_path: Path) -> Flaky:
    path = Flaky(tmp_path / "file.txt")
    Path(path).write_text("content", encoding="utf-8")
    return path


async def test_an_input_output_error_is_tried_again_with_one_warning(
    flaky: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    flaky.failures = [errno.EIO, errno.EIO]

    with caplog.at_level(logging.WARNING):
        assert await read_with_retry(flaky, initial_delay=0) == "content"

    assert [("cloud" in record.getMessage()) for record in caplog.records] == [True]


async def test_the_last_attempt_raises(flaky: Flaky) -> None:
    flaky.failures = [errno.EIO] * 3

    with pytest.raises(OSError, match="synced"):
        await read_with_retry(flaky, initial_delay=0)
    assert flaky.failures == []


async def test_another_error_is_raised_at_once(flaky: Flaky) -> None:
    flaky.failures = [errno.EACCES, errno.EACCES]

    with pytest.raises(PermissionError):
        await read_with_retry(flaky, initial_delay=0)
    assert len(flaky.failures) == 1


async def test_writing_makes_the_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"

    await write_with_retry(path, "größe")

    assert path.read_text(encoding="utf-8") == "größe"


def test_what_was_there_is_kept_as_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.json"

    write_with_backup(path, "one")
    path.chmod(0o640)
    write_with_backup(path, "two")
    write_with_backup(path, b"three", mode="wb", backup_suffix=".old")

    assert path.read_bytes() == b"three"
    assert (path.parent / "settings.json.backup").read_text(encoding="utf-8") == "one"
    assert (path.parent / "settings.json.old").read_text(encoding="utf-8") == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_failed_write_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "target"
    directory.mkdir()

    with pytest.raises(OSError, match="directory"):
        write_with_backup(directory, "text")

    assert list(tmp_path.iterdir()) == [directory]


@pytest.mark.parametrize("encoding", ["ascii", "no-such-encoding"])
def test_a_text_that_cannot_be_encoded_is_an_error_of_writing(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    with pytest.raises(OSError, match=r"a\.txt"):
        write_with_backup(path, "€", encoding=encoding)

    assert path.read_text(encoding="utf-8") == "old"
