"""Files that survive crashes: whole lines, and files that are there as a whole or not at all."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from amplifier_system.files import LineFile, Replacement, create_atomically, write_atomically

WRITER = """
import sys
from pathlib import Path
from amplifier_system.files import LineFile
file = LineFile(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    file.append(f"{sys.argv[2]} {number} {'x' * 200}\\n")
"""
SMALL_FILES = """
import resource, signal, sys
from pathlib import Path
from amplifier_system.files import LineFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = LineFile(Path(sys.argv[1]))
file.append("fits\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
for text in ("does not fit at all\\n", "nor this one\\n"):
    try:
        file.append(text)
    except OSError:
        print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.append("fits again\\n")
"""


class TestLines:
    def test_lines_are_appended_and_counted_in_bytes(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "log"
        file = LineFile(path)

        assert file.append("ü\n") == 3
        assert file.append("two\nlines\n") == 10
        assert file.size() == 13
        file.close()
        file.close()

        assert path.read_text(encoding="utf-8") == "ü\ntwo\nlines\n"
        assert S_IMODE(path.stat().st_mode) == 0o600

    def test_a_line_that_a_crash_tore_is_ended_before_the_next(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_text("whole\nto")

        LineFile(path).append("next\n")
        LineFile(path).append("last\n")

        assert path.read_text() == "whole\nto\nnext\nlast\n"

    def test_what_cannot_be_encoded_is_replaced(self, tmp_path: Path) -> None:
        LineFile(tmp_path / "log").append("\ud800\n")

        assert (tmp_path / "log").read_text() == "?\n"

    def test_a_line_can_be_forced_to_the_disk(self, tmp_path: Path) -> None:
        file = LineFile(tmp_path / "log", fsync=True)

        file.append("one\n")

        assert os.pread(file.fileno(), 9, 0) == b"one\n"

    def test_processes_share_a_file_without_mixing_lines(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(tmp_path / "log")]
        writers = [subprocess.Popen([*command, name, "300"]) for name in "abc"]
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]

        lines = (tmp_path / "log").read_text().splitlines()

        assert len(lines) == 900
        assert {len(line.split()[2]) for line in lines} == {200}
        for name in "abc":
            assert [line.split()[1] for line in lines if line.startswith(name)] == [
                str(number) for number in range(300)
            ]

    def test_a_full_disk_loses_the_line_and_nothing_else(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", SMALL_FILES, str(tmp_path / "log")], capture_output=True, text=True, timeout=60
        )

        assert (done.returncode, done.stdout) == (0, "refused\nrefused\n"), done.stderr
        assert (tmp_path / "log").read_text() == "fits\nfits again\n"

    def test_a_killed_writer_leaves_whole_lines_and_at_most_one_torn(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "a", "10000000"])
        try:
            while not (path.exists() and path.stat().st_size > 50_000):
                assert writer.poll() is None
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()

        LineFile(path).append("after\n")

        *lines, last = path.read_text().splitlines()
        assert last == "after"
        whole = [line for line in lines if len(line) >= 200]
        assert len(lines) - len(whole) <= 1
        assert [line.split()[1] for line in whole] == [str(number) for number in range(len(whole))]


class TestWholeFiles:
    def test_a_file_is_replaced_and_keeps_its_permissions(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / f"{'long' * 60}.json"
        write_atomically(path, b"one")
        path.chmod(0o640)
        write_atomically(path, b"two", lasting=False)

        assert path.read_bytes() == b"two"
        assert S_IMODE(path.stat().st_mode) == 0o640
        assert list(path.parent.iterdir()) == [path]

    def test_a_file_is_replaced_and_private(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "state.json"
        write_atomically(path, b"one")
        write_atomically(path, b"two", private=True)

        assert path.read_bytes() == b"two"
        assert S_IMODE(path.stat().st_mode) == 0o600
        assert list(path.parent.iterdir()) == [path]

    def test_a_write_that_fails_leaves_the_old_contents_and_no_remains(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        write_atomically(path, b"old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                write_atomically(path, b"x" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, ignored)

        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_new_file_never_replaces_another(self, tmp_path: Path) -> None:
        candidates = [tmp_path / name for name in ("a", "b", "c")]

        created = [create_atomically(candidates, name.encode()) for name in ("one", "two", "three")]

        assert created == candidates
        assert [path.read_bytes() for path in candidates] == [b"one", b"two", b"three"]
        with pytest.raises(FileExistsError):
            create_atomically(candidates, b"four")
        assert sorted(tmp_path.iterdir()) == candidates
        assert {S_IMODE(path.stat().st_mode) for path in candidates} == {0o600}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_replacement_takes_the_place_of_a_file_or_a_link_in_an_open_directory(tmp_path: Path, directory: int) -> None:
    (tmp_path / "elsewhere").write_text("stays")
    (tmp_path / "link").symlink_to("elsewhere")
    with Replacement(directory, prefix=".new-") as new:
        new.file.write(b"written")
        (beside,) = tmp_path.glob(".new-*")
        told = new.sync()
        new.take_place("link")

    assert (told.st_size, S_IMODE(told.st_mode), beside.exists()) == (7, 0o600, False)
    assert {path.name: (path.is_symlink(), path.read_text()) for path in tmp_path.iterdir()} == {
        "elsewhere": (False, "stays"),
        "link": (False, "written"),
    }


def test_a_replacement_that_did_not_take_its_place_is_gone(tmp_path: Path, directory: int) -> None:
    (tmp_path / "file").write_text("old")
    with Replacement(directory) as new:
        new.file.write(b"new")

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
