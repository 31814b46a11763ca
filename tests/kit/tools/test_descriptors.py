"""Opening by descriptor: nothing is entered through a link, nothing is waited for."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_kit.tools.paths import LinkInTheWayError, open_in, opened_directory, real_path, stat_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve()
    (folder / "real/inner").mkdir(parents=True)
    (folder / "real/inner/file").write_text("text")
    (folder / "link").symlink_to("real")
    (folder / "real/leaf").symlink_to("inner/file")
    return folder


def test_a_directory_is_opened_and_knows_where_it_lies(folder: Path) -> None:
    with opened_directory(folder / "real/inner") as directory:
        descriptor = open_in(directory, "file", os.O_RDONLY)
        assert os.read(descriptor, 9) == b"text"
        os.close(descriptor)
        assert real_path(directory) == folder / "real/inner"


def test_a_link_on_the_way_or_at_the_end_is_not_followed(folder: Path) -> None:
    with pytest.raises(LinkInTheWayError), opened_directory(folder / "link/inner"):
        pass
    with opened_directory(folder / "real") as directory:
        with pytest.raises(LinkInTheWayError):
            open_in(directory, "leaf", os.O_RDONLY)
        with pytest.raises(LinkInTheWayError):
            stat_in(directory, "leaf")


def test_missing_directories_are_made_only_on_request(folder: Path) -> None:
    with pytest.raises(FileNotFoundError), opened_directory(folder / "new/er"):
        pass
    with opened_directory(folder / "new/er", create=True) as directory:
        assert stat_in(directory, "anything") is None
    assert (folder / "new/er").is_dir()


def test_nothing_is_made_through_a_link(folder: Path) -> None:
    with pytest.raises(LinkInTheWayError), opened_directory(folder / "link/new", create=True):
        pass
    assert not (folder / "real/new").exists()


def test_a_file_on_the_way_is_told_from_a_link(folder: Path) -> None:
    with pytest.raises(NotADirectoryError), opened_directory(folder / "real/inner/file/x"):
        pass


def test_a_pipe_without_a_writer_is_opened_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with opened_directory(folder) as directory:
        os.close(open_in(directory, "pipe", os.O_RDONLY))


def test_no_descriptor_is_left_open(folder: Path) -> None:
    lowest = os.dup(0)  # the lowest number that is free
    os.close(lowest)
    for path in ("real/inner", "link/inner", "none", "real/inner/file/x"):
        with suppress(OSError), opened_directory(folder / path):
            pass

    again = os.dup(0)
    os.close(again)
    assert again == lowest
