"""A law: whatever the tree and whatever happens to it, an undo restores exactly, and undoing that does too."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amplifierd.checkpoints import Checkpoints

from .conftest import picture

names = st.sampled_from(["a", "b", "c", "d.txt", "é", "-x", "new\nline", os.fsdecode(b"\xff")])
places = st.lists(names, min_size=1, max_size=4).map(tuple)
contents = st.sampled_from([b"", b"one\n", b"two\n", b"\0binary", b"x" * 5000])
modes = st.sampled_from([0o644, 0o600, 0o755, 0o700])

Act = tuple[str, tuple[str, ...], Any]


def acts(most: int) -> st.SearchStrategy[list[Act]]:
    return st.lists(
        st.one_of(
            st.tuples(st.just("write"), places, contents),
            st.tuples(st.just("remove"), places, st.none()),
            st.tuples(st.just("folder"), places, modes),
            st.tuples(st.just("link"), places, names),
            st.tuples(st.just("mode"), places, modes),
            st.tuples(st.just("rename"), places, places),
        ),
        max_size=most,
    )


def perform(root: Path, act: Act) -> None:
    """Do something to a tree; what the tree does not allow is not done."""
    verb, place, detail = act
    path = root.joinpath(*place)
    with suppress(OSError):
        PERFORM[verb](root, path, detail)


def _write(root: Path, path: Path, detail: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(detail)


def _remove(root: Path, path: Path, detail: None) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _link(root: Path, path: Path, detail: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(detail)


PERFORM: dict[str, Callable[[Path, Path, Any], object]] = {
    "write": _write,
    "remove": _remove,
    "folder": lambda root, path, mode: path.mkdir(mode, parents=True),
    "link": _link,
    "mode": lambda root, path, mode: path.chmod(mode),
    "rename": lambda root, path, place: path.rename(root.joinpath(*place)),
}


@settings(max_examples=25)
@given(acts(12), acts(10))
def test_undo_restores_exactly_whatever_happened(first: list[Act], second: list[Act]) -> None:
    asyncio.run(check_undo(first, second))


async def check_undo(first: list[Act], second: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        for act in first:
            perform(work, act)
        checkpoints = Checkpoints(Path(folder) / "checkpoints", work)
        start = picture(work)
        before = await checkpoints.take(1)
        for act in second:
            perform(work, act)
        changed = picture(work)
        after = await checkpoints.take(1, label="after")

        result = await checkpoints.undo(before, after)

        assert (result.done, result.foreign, result.not_empty) == (True, (), ())
        assert picture(work) == start
        assert result.before is not None
        assert result.after is not None
        assert (await checkpoints.undo(result.before, result.after)).done
        assert picture(work) == changed


@settings(max_examples=25)
@given(acts(10), acts(6), acts(4))
def test_without_force_an_undo_does_all_or_nothing(first: list[Act], second: list[Act], foreign: list[Act]) -> None:
    asyncio.run(check_foreign(first, second, foreign))


async def check_foreign(first: list[Act], second: list[Act], foreign: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        checkpoints = Checkpoints(Path(folder) / "checkpoints", work)
        for act in first:
            perform(work, act)
        start = picture(work)
        before = await checkpoints.take(1)
        for act in second:
            perform(work, act)
        left = picture(work)
        after = await checkpoints.take(1, label="after")
        for act in foreign:
            perform(work, act)
        standing = picture(work)

        result = await checkpoints.undo(before, after)

        if not result.done:
            assert result.foreign
            assert picture(work) == standing
            result = await checkpoints.undo(before, after, force=True)
            assert result.done
        undone = picture(work)
        for path in start.keys() | left.keys():
            if start.get(path) != left.get(path) and os.fsdecode(path) not in result.not_empty:
                assert undone.get(path) == start.get(path)
        assert result.before is not None
        assert result.after is not None
        await checkpoints.undo(result.before, result.after)
        assert picture(work) == standing
