"""A cache that is tidied keeps what is used."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from amplifier_foundation.sources import ResolvedRef, Sources, prune

_DAY_S = 86400


def _age(cache_dir: Path, days: float) -> None:
    moment = time.time() - days * _DAY_S
    for path in cache_dir.rglob("*"):
        os.utime(path, (moment, moment), follow_symlinks=False)


async def _fill(sources: Sources, repository: Any, server: Any) -> tuple[ResolvedRef, ResolvedRef, Path]:
    server.answers["/a.md"] = (200, {}, b"a")
    git, url = await sources.resolve(f"{repository.source}@main"), await sources.resolve(f"{server.url}/a.md")
    env = sources.cache_dir / "env" / "0123"
    env.mkdir(parents=True)
    (env / "x.py").touch()
    return git, url, env


async def test_what_nobody_used_for_long_is_removed(repository: Any, server: Any, sources: Sources) -> None:
    git, url, env = await _fill(sources, repository, server)
    _age(sources.cache_dir, 31)

    result = prune(sources.cache_dir)

    assert set(result.removed) == {git.path, url.path.parent, env}
    assert result.freed_bytes > 0
    assert not any(path.exists() for path in result.removed)
    assert not (sources.cache_dir / "git" / f"{git.commit}.json").exists()
    again = await sources.resolve(f"{repository.source}@main")
    assert (again.path, again.from_cache) == (git.path, False)


async def test_what_is_in_use_stays_however_old(repository: Any, server: Any, sources: Sources) -> None:
    git, url, env = await _fill(sources, repository, server)
    _age(sources.cache_dir, 365)

    by_path = prune(sources.cache_dir, in_use=[git.path / "modules", url.path, env / "x.py"], keep_days=30)
    by_name = prune(sources.cache_dir, in_use=[str(git.commit), url.path.parent.name, env.name], keep_days=30)

    assert by_path.removed == by_name.removed == ()


async def test_what_was_used_lately_stays(repository: Any, server: Any, sources: Sources) -> None:
    await _fill(sources, repository, server)
    _age(sources.cache_dir, 10)

    assert prune(sources.cache_dir, keep_days=30).removed == ()


async def test_the_oldest_goes_until_the_rest_is_small_enough(tmp_path: Path) -> None:
    entries = [tmp_path / "env" / name for name in ("oldest", "used", "newest")]
    for days, entry in zip((9, 8, 1), entries, strict=True):
        entry.mkdir(parents=True)
        (entry / "x.py").write_bytes(b"x" * 100)
        _age(entry, days)

    result = prune(tmp_path, in_use=["used"], max_bytes=250)

    assert (result.removed, [entry.exists() for entry in entries]) == ((entries[0],), [False, True, True])
    assert prune(tmp_path, in_use=["used"], max_bytes=50).removed == (entries[2],)


async def test_what_somebody_works_on_stays(repository: Any, server: Any, sources: Sources) -> None:
    git, _, _ = await _fill(sources, repository, server)
    _age(sources.cache_dir, 31)

    with FileLock(sources.cache_dir / "locks" / f"git-{git.commit}.lock"):
        removed = prune(sources.cache_dir).removed

    assert (git.path in removed, git.path.is_dir()) == (False, True)


async def test_what_crashes_left_is_removed(repository: Any, sources: Sources) -> None:
    await sources.resolve(f"{repository.source}@main")
    old, new = (sources.cache_dir / "git" / f".staging-{name}" for name in ("old", "new"))
    for leftover in (old, new):
        (leftover / "tree").mkdir(parents=True)
    os.utime(old, (0, 0))

    assert prune(sources.cache_dir).removed == (old,)


def test_a_cache_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert prune(tmp_path / "nowhere").removed == ()


async def test_one_tree_goes_and_the_other_stays(new_repository: Callable[..., Any], sources: Sources) -> None:
    old = await sources.resolve(f"{new_repository('old', {'a': 'old'}).source}@main")
    _age(sources.cache_dir, 31)
    new = await sources.resolve(f"{new_repository('new', {'a': 'new'}).source}@main")

    assert prune(sources.cache_dir).removed == (old.path,)
    assert new.path.is_dir()


def test_environments_that_somebody_works_on_stay_forced_ones_too(tmp_path: Path) -> None:
    first, forced = (tmp_path / "env" / name for name in ("0123456789abcdef", "0123456789abcdef.1"))
    for directory in (first, forced):
        directory.mkdir(parents=True)
    (tmp_path / "locks").mkdir()
    _age(tmp_path, 31)

    with FileLock(tmp_path / "locks" / "env-0123456789abcdef.lock"):
        meanwhile = prune(tmp_path).removed

    assert meanwhile == ()
    assert set(prune(tmp_path).removed) == {first, forced}
