"""Directories elsewhere: files come whole by name, are written whole, and failures say what and where."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.remote_directory import RemoteDirectory, Write


def remote(url: str, *, offline: bool = False, most_bytes: int = 1000) -> RemoteDirectory:
    return RemoteDirectory(url, offline=offline, most_bytes=most_bytes)


def writing(content: bytes, during: Callable[[], object] = lambda: None) -> Write:
    def write(file: IO[bytes], stop: Any) -> None:
        file.write(content[:1])
        during()
        file.write(content[1:])

    return write


@pytest.mark.parametrize("scheme", ["file", "memory"])
async def test_a_file_is_read_as_it_was_before_or_after_a_write_and_never_in_between(
    tmp_path: Path, scheme: str
) -> None:
    place = remote(f"{scheme}://{tmp_path}/a b/")
    await place.write("x/one", writing(b"first"))
    seen: list[bytes] = []

    await place.write("x/one", writing(b"second", lambda: seen.append(b"".join(read_all(scheme, tmp_path, "one")))))

    assert seen == [b"first"]
    assert await place.read("x/one") == b"second"


def read_all(scheme: str, tmp_path: Path, name: str) -> list[bytes]:
    if scheme == "file":
        return [path.read_bytes() for path in tmp_path.rglob(name)]
    import fsspec

    system = fsspec.filesystem("memory")
    return [system.cat_file(f"{tmp_path}/a b/x/{name}")]


def files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    place = remote(tmp_path.as_uri())
    await place.write("one", writing(b"first"))

    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RefResolutionError, match=r"Failed to write file://.*/one: .*No space left on device"):
        await place.write("one", writing(b"second", fail))

    assert files_in(tmp_path) == {"one": b"first"}


async def test_what_cannot_be_reached_says_why(tmp_path: Path) -> None:
    with pytest.raises(RefResolutionError, match="does not exist") as missing:
        await remote(tmp_path.as_uri()).read("nothing")
    assert missing.value.reason == "not-found"
    with pytest.raises(RefResolutionError, match="offline"):
        await remote("https://me:secret@host.invalid/x", offline=True).read("one")
    with pytest.raises(RefResolutionError, match=r"https://host.invalid/x can only be read"):
        await remote("https://me:secret@host.invalid/x").write("one", writing(b"first"))
    with pytest.raises(RefResolutionError, match="nothing is known about the scheme 'nowhere'"):
        await remote("nowhere://x").write("one", writing(b"first"))
    (tmp_path / "large").write_bytes(bytes(2000))
    with pytest.raises(RefResolutionError, match="larger than 1,000 bytes"):
        await remote(tmp_path.as_uri()).read("large")
