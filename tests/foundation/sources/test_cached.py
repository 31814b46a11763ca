"""What a cache of sources holds, and what pruning would take."""

from pathlib import Path

import pytest
from git_repository import Repository, use_plain_git

from amplifier_foundation.sources import Sources, list_cached, prune


async def test_entries_are_described_and_looking_is_not_using(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "origin")
    commit = repository.commit({"file.md": "text\n"})
    cache = tmp_path / "cache"
    await Sources(cache).resolve(repository.source)
    sidecar = cache / "git" / f"{commit}.json"
    before = sidecar.stat()

    (entry,) = list_cached(cache)

    assert (entry.kind, entry.version, entry.bytes >= 5) == ("git", commit, True)
    assert entry.source == repository.path.as_uri()
    after = sidecar.stat()
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)


async def test_a_dry_run_says_what_would_go_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "origin")
    commit = repository.commit({"file.md": "text\n"})
    cache = tmp_path / "cache"
    await Sources(cache).resolve(repository.source)

    would = prune(cache, keep_days=0, dry_run=True)

    assert [path.name for path in would.removed] == [commit]
    assert would.removed[0].is_dir()
    assert prune(cache, keep_days=0).removed == would.removed


def test_an_empty_cache_holds_nothing(tmp_path: Path) -> None:
    assert list_cached(tmp_path / "none") == ()
