"""A bundle's directories are on `sys.path` while it has sessions."""

import sys
from pathlib import Path

from amplifier_foundation.modules.import_paths import ImportPaths


def on_path(*directories: Path) -> list[bool]:
    return [str(directory) in sys.path for directory in directories]


def test_entries_go_with_the_last_session_and_come_back_with_the_next(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    paths = ImportPaths()

    paths.add([str(a), str(b)])
    assert sys.path[:2] == [str(a), str(b)]
    first, second = paths.acquire(), paths.acquire()
    first()
    first()
    assert on_path(a, b) == [True, True]
    second()
    assert on_path(a, b) == [False, False]
    again = paths.acquire()
    assert sys.path[:2] == [str(a), str(b)]
    again()
    assert on_path(a, b) == [False, False]


def test_bundles_that_share_a_directory_do_not_take_it_from_each_other(tmp_path: Path) -> None:
    one, other = ImportPaths(), ImportPaths()
    one.add([str(tmp_path)])
    other.add([str(tmp_path)])

    release = one.acquire()
    release()
    assert on_path(tmp_path) == [True]
    release = other.acquire()
    release()
    assert on_path(tmp_path) == [False]


def test_an_entry_of_somebody_else_stays(tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    paths = ImportPaths()
    paths.add([str(tmp_path)])

    release = paths.acquire()
    release()

    assert sys.path.count(str(tmp_path)) == 1
    sys.path.remove(str(tmp_path))


def test_an_entry_that_is_added_while_no_session_runs_waits_for_the_next(tmp_path: Path) -> None:
    paths = ImportPaths()
    release = paths.acquire()
    release()

    paths.add([str(tmp_path)])
    assert on_path(tmp_path) == [False]
    release = paths.acquire()
    assert on_path(tmp_path) == [True]
    release()
