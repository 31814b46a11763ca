"""Any installed fsspec backend as a source."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, Sources, hash_content


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


async def test_a_file_of_a_backend_is_copied_once(memory: fsspec.AbstractFileSystem, sources: Sources) -> None:
    memory.pipe("/box/agent.md", b"one")
    first = await sources.resolve("memory://box/agent.md")
    memory.pipe("/box/agent.md", b"two")

    same = await sources.resolve("memory://box/agent.md")
    kept, name = same.path.read_bytes(), same.path.name
    new = await sources.resolve("memory://box/agent.md", refresh=True)

    assert (first.kind, same.from_cache, kept, name) == ("fsspec", True, b"one", "agent.md")
    assert (new.path.read_bytes(), new.content_hash) == (b"two", hash_content(new.path))


async def test_a_directory_of_a_backend_is_copied_whole(memory: fsspec.AbstractFileSystem, sources: Sources) -> None:
    memory.pipe({"/box/dir/bundle.md": b"b", "/box/dir/sub/a.md": b"a"})

    resolved = await sources.resolve("memory://box/dir")
    part = await sources.resolve("memory://box/dir#sub/a.md")

    assert sorted(path.name for path in resolved.path.rglob("*")) == ["a.md", "bundle.md", "sub"]
    assert (part.path.read_bytes(), resolved.content_hash) == (b"a", hash_content(resolved.path))


async def test_what_a_backend_does_not_have_is_reported(memory: fsspec.AbstractFileSystem, sources: Sources) -> None:
    with pytest.raises(RefResolutionError, match="Failed to download ") as caught:
        await sources.resolve("memory://box/nothing")

    assert caught.value.reason == "not-found"


@pytest.mark.parametrize("limit", [{"file_bytes": 3, "tree_bytes": 3}, {"tree_entries": 0, "file_bytes": 3}])
@pytest.mark.parametrize("url", ["memory://box/dir", "memory://box/dir/a"])
async def test_what_is_too_large_is_refused_and_leaves_nothing(
    memory: fsspec.AbstractFileSystem, cache_dir: Path, limits: Limits, url: str, limit: dict[str, int]
) -> None:
    memory.pipe("/box/dir/a", b"12345")

    with pytest.raises(RefResolutionError) as caught:
        await Sources(cache_dir, limits=replace(limits, **limit)).resolve(url)

    assert caught.value.reason == "too-large"
    assert list((cache_dir / "fsspec").iterdir()) == []


@pytest.mark.parametrize("scheme", ["nonsense", "oci"])
async def test_a_scheme_without_backend_is_named(sources: Sources, scheme: str) -> None:
    with pytest.raises(RefResolutionError, match=f"No handler for URI: .*'{scheme}'") as caught:
        await sources.resolve(f"{scheme}://x/y")

    assert caught.value.reason == "backend-missing"


@pytest.mark.parametrize("url", ["local:///etc/hostname", "dir:///etc", "simplecache:///etc/hostname"])
async def test_backends_that_read_this_machine_are_closed_where_paths_are_restricted(
    cache_dir: Path, tmp_path: Path, url: str
) -> None:
    with pytest.raises(RefResolutionError) as caught:
        await Sources(cache_dir, allowed_roots=[tmp_path]).resolve(url)

    assert caught.value.reason == "unsafe-path"
