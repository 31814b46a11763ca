"""Archives: extracted once, whole, and inside of their directory."""

import io
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, Sources, hash_content


def _zip(files: Mapping[str, bytes], links: Mapping[str, str] | None = None, *, mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
        for name, target in (links or {}).items():
            link = zipfile.ZipInfo(name)
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, target)
    return buffer.getvalue()


async def test_an_archive_is_extracted_under_its_stem(server: Any, sources: Sources) -> None:
    server.answers["/pack.zip"] = (200, {}, _zip({"m/a.md": b"a", "bundle.md": b"b"}))

    resolved = await sources.resolve(f"zip+{server.url}/pack.zip")
    part = await sources.resolve(f"zip+{server.url}/pack.zip#subdirectory=m")

    assert (resolved.path.name, resolved.path.parent.parent) == ("pack", sources.cache_dir / "fsspec")
    assert ((part.path / "a.md").read_bytes(), part.root, part.from_cache) == (b"a", resolved.path, True)
    assert resolved.content_hash == hash_content(resolved.path)
    assert sorted(path.name for path in resolved.path.parent.iterdir()) == [".meta.json", "pack"]
    assert len(server.seen) == 1


async def test_an_archive_and_the_file_it_is_are_two_entries(server: Any, sources: Sources) -> None:
    server.answers["/pack.zip"] = (200, {}, _zip({"a": b"a"}))

    tree, file = [await sources.resolve(f"{kind}{server.url}/pack.zip") for kind in ("zip+", "")]

    assert (tree.path.is_dir(), file.path.is_file(), tree.path.parent != file.path.parent) == (True, True, True)


async def test_a_local_archive_is_used_even_when_it_is_gone(sources: Sources, tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    archive.write_bytes(_zip({"a": b"a"}))
    await sources.resolve("zip+file://./x.zip", base_dir=tmp_path)
    archive.unlink()

    resolved = await sources.resolve(f"zip+{archive.as_uri()}")

    assert ((resolved.path / "a").read_bytes(), resolved.from_cache) == (b"a", True)


async def test_a_local_archive_that_never_was_is_reported(sources: Sources, tmp_path: Path) -> None:
    with pytest.raises(RefResolutionError, match="Zip file not found") as caught:
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert caught.value.reason == "not-found"


async def test_a_refresh_extracts_what_changed(server: Any, sources: Sources) -> None:
    server.answers["/x.zip"] = (200, {"ETag": '"1"'}, _zip({"old": b""}))
    await sources.resolve(f"zip+{server.url}/x.zip")
    server.answers["/x.zip"] = (200, {"ETag": '"2"'}, _zip({"new": b""}))

    new = await sources.resolve(f"zip+{server.url}/x.zip", refresh=True)
    same = await sources.resolve(f"zip+{server.url}/x.zip", refresh=True)

    assert [path.name for path in new.path.iterdir()] == ["new"]
    assert (new.from_cache, same.from_cache, server.seen[2][1]["if-none-match"]) == (False, True, '"2"')


async def test_executable_files_stay_so(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(_zip({"run": b"#!/bin/sh\n"}, mode=0o755))

    resolved = await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert (resolved.path / "run").stat().st_mode & 0o100


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:/evil"])
async def test_a_member_that_leaves_the_directory_is_refused(sources: Sources, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.zip").write_bytes(_zip({"fine": b"", name: b"evil"}))

    with pytest.raises(RefResolutionError, match=r"Failed to extract .* is not inside") as caught:
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert caught.value.reason == "unsafe-path"
    assert list((sources.cache_dir / "fsspec").iterdir()) == []
    assert _names(tmp_path) == ["cache", "x.zip"]


@pytest.mark.parametrize("target", ["/etc", "../../../outside"])
async def test_a_link_that_leaves_the_directory_is_refused(sources: Sources, tmp_path: Path, target: str) -> None:
    (tmp_path / "x.zip").write_bytes(_zip({"fine": b""}, {"link": target}))

    with pytest.raises(RefResolutionError, match="leads out") as caught:
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert caught.value.reason == "unsafe-path"
    assert list((sources.cache_dir / "fsspec").iterdir()) == []


async def test_nothing_is_written_through_a_link(sources: Sources, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "x.zip").write_bytes(_zip({"link/planted": b""}, {"link": str(outside)}))

    with pytest.raises(RefResolutionError):
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert list(outside.iterdir()) == []


async def test_a_link_inside_of_the_directory_is_kept(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(_zip({"a": b"a"}, {"sub/link": "../a"}))

    resolved = await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert (resolved.path / "sub" / "link").read_bytes() == b"a"


@pytest.mark.parametrize(
    ("limit", "text"), [({"tree_bytes": 100_000}, "100,000 bytes when extracted"), ({"tree_entries": 2}, "2 entries")]
)
async def test_an_archive_that_grows_beyond_the_limits_is_refused(
    cache_dir: Path, limits: Limits, tmp_path: Path, limit: dict[str, int], text: str
) -> None:
    (tmp_path / "x.zip").write_bytes(_zip({name: b"\0" * 50_000 for name in "abc"}))

    with pytest.raises(RefResolutionError, match=f"more than {text}") as caught:
        await Sources(cache_dir, limits=replace(limits, **limit)).resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert caught.value.reason == "too-large"
    assert list((cache_dir / "fsspec").iterdir()) == []


async def test_an_archive_that_lies_about_its_size_is_refused(cache_dir: Path, limits: Limits, tmp_path: Path) -> None:
    data = _zip({"a": b"\0" * 500_000})
    honest = (500_000).to_bytes(4, "little")
    (tmp_path / "x.zip").write_bytes(data.replace(honest, (10).to_bytes(4, "little")))

    with pytest.raises(RefResolutionError) as caught:
        await Sources(cache_dir, limits=replace(limits, tree_bytes=1000)).resolve(
            f"zip+{(tmp_path / 'x.zip').as_uri()}"
        )

    assert caught.value.reason in ("integrity", "too-large")
    assert list((cache_dir / "fsspec").iterdir()) == []


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_an_archive_that_would_fill_the_memory_is_refused(sources: Sources, tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
        archive.writestr("a", bytes(20_000_000))

    with pytest.raises(RefResolutionError, match=r"'a' is compressed with (bzip2|lzma)") as caught:
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert caught.value.reason == "integrity"
    assert list((sources.cache_dir / "fsspec").iterdir()) == []


async def test_an_archive_in_an_archive_stays_packed(sources: Sources, tmp_path: Path) -> None:
    inner = _zip({"bomb": bytes(5_000_000)})
    (tmp_path / "x.zip").write_bytes(_zip({"inner.zip": inner}))

    resolved = await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert (resolved.path / "inner.zip").read_bytes() == inner


@pytest.mark.parametrize("name", ["x" * 300, "d/" * 3000 + "x"], ids=["one", "of directories"])
async def test_a_name_that_no_disk_takes_is_refused(sources: Sources, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.zip").write_bytes(_zip({name: b"a"}))

    with pytest.raises(RefResolutionError, match="Failed to extract "):
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert list((sources.cache_dir / "fsspec").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a zip", _zip({"a": b"a" * 100})[:-30]], ids=["empty", "text", "torn"])
async def test_what_is_no_archive_is_refused(sources: Sources, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)

    with pytest.raises(RefResolutionError, match="Failed to extract ") as caught:
        await sources.resolve(f"zip+{(tmp_path / 'x.zip').as_uri()}")

    assert caught.value.reason == "integrity"
    assert list((sources.cache_dir / "fsspec").iterdir()) == []


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
