"""Zip files that would take the machine's memory are refused before anything of them is unpacked."""

import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amplifier_system.zip_files import TooManyEntriesError, UnsafeZipError, open_untrusted

MIB = 1 << 20


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB, f"it took {peak / MIB:.0f} MiB"


def one_entry(path: Path, method: int, mib: int = 24) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("manifest.json")
        entry.compress_type = method
        with archive.open(entry, "w") as file:
            for _ in range(mib):
                file.write(bytes(MIB))
    return path


@pytest.mark.parametrize(("method", "name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma")])
def test_what_can_only_be_unpacked_whole_is_refused(tmp_path: Path, method: int, name: str) -> None:
    path = one_entry(tmp_path / "bomb.zip", method)
    assert path.stat().st_size < 5000

    with (
        little_memory(),
        pytest.raises(UnsafeZipError, match=f"'manifest.json' is compressed with {name}"),
        open_untrusted(path, most_entries=10) as archive,
        archive.open("manifest.json") as file,
    ):
        file.read(100)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_usual_entries_are_read_piece_by_piece(tmp_path: Path, method: int) -> None:
    path = one_entry(tmp_path / "large.zip", method)

    with little_memory(), open_untrusted(path, most_entries=1) as archive, archive.open("manifest.json") as file:
        assert file.read(1000) == bytes(1000)
        assert sum(len(piece) for piece in iter(lambda: file.read(MIB), b"")) == 24 * MIB - 1000


def many_entries(path: Path, count: int) -> Path:
    """Write a directory of entries without the files that they name: 46 bytes each, and a name."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"")
    data = path.read_bytes()
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    directory = data[start:end] * count
    tail = data[end : end + 12] + len(directory).to_bytes(4, "little") + data[end + 16 :]
    path.write_bytes(data[:start] + directory + tail)
    return path


def test_entries_are_counted_before_they_are_read(tmp_path: Path) -> None:
    path = many_entries(tmp_path / "many.zip", 100_000)

    with (
        little_memory(),
        pytest.raises(TooManyEntriesError, match="more than 50,000 entries"),
        open_untrusted(path, most_entries=50_000),
    ):
        pass


def test_a_signature_between_two_pieces_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", bytes(MIB))
    data = path.read_bytes()
    path.write_bytes(data.replace(bytes(MIB), bytes(2 * MIB - data.index(b"PK\x01\x02") + MIB - 2)))
    assert path.read_bytes().index(b"PK\x01\x02") % MIB == MIB - 2

    with pytest.raises(TooManyEntriesError), open_untrusted(path, most_entries=0):
        pass


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    path = one_entry(tmp_path / "x.zip", zipfile.ZIP_STORED, mib=1)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)

    with pytest.raises(UnsafeZipError, match="is encrypted"), open_untrusted(path, most_entries=10):
        pass
