"""Undo: everything a turn changed comes back, nothing else is touched, and what others did since is not lost."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifierd.checkpoints import Checkpoints
from amplifierd.exceptions import CheckpointError

from .conftest import picture


def change_everything(work: Path) -> None:
    """What a turn may do: through tools or a shell."""
    script = """
        printf 'one\\n2\\nthree\\n' > notes.md
        chmod 600 src/main.py
        rm run.sh
        rm -r src/deep
        ln -sfn src link
        rmdir empty
        mkdir -p new/inner new/void
        echo fresh > new/inner/file.txt
        chmod 700 new
        mkfifo pipe
    """
    subprocess.run(["sh", "-ec", script], cwd=work, check=True)
    (work / "pipe").unlink()


async def test_undo_restores_edits_new_and_deleted_files_modes_symlinks_and_empty_directories(
    checkpoints: Checkpoints, work: Path
) -> None:
    start = picture(work)
    before = await checkpoints.take(1)
    change_everything(work)
    after = await checkpoints.take(1, label="after")
    changed = picture(work)

    result = await checkpoints.undo(before, after)

    assert (result.done, result.foreign, result.not_empty) == (True, (), ())
    assert picture(work) == start
    assert changed != start


async def test_an_undo_can_be_undone(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    change_everything(work)
    after = await checkpoints.take(1, label="after")
    changed = picture(work)

    first = await checkpoints.undo(before, after)
    assert first.before is not None
    assert first.after is not None
    second = await checkpoints.undo(first.before, first.after)

    assert second.done
    assert picture(work) == changed


async def test_a_turn_in_the_middle_is_undone_without_those_around_it(checkpoints: Checkpoints, work: Path) -> None:
    first = await checkpoints.take(1)
    (work / "one.txt").write_text("one")
    second = await checkpoints.take(2)
    (work / "notes.md").write_text("changed by the second turn")
    third = await checkpoints.take(3)
    (work / "three.txt").write_text("three")
    await checkpoints.take(4)

    result = await checkpoints.undo(second, third)

    assert result.restored == ("notes.md",)
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"
    assert (work / "one.txt").exists()
    assert (work / "three.txt").exists()
    assert (await checkpoints.undo(first, second)).done
    assert not (work / "one.txt").exists()


async def test_what_others_changed_since_is_listed_and_nothing_at_all_is_touched(
    checkpoints: Checkpoints, work: Path
) -> None:
    before = await checkpoints.take(1)
    (work / "notes.md").write_text("by the turn")
    (work / "src" / "main.py").unlink()
    after = await checkpoints.take(1, label="after")
    (work / "notes.md").write_text("by a person")
    (work / "other.txt").write_text("by a person, and not touched by the turn")
    standing = picture(work)

    refused = await checkpoints.undo(before, after)

    assert (refused.done, refused.foreign, refused.restored) == (False, ("notes.md",), ())
    assert picture(work) == standing

    forced = await checkpoints.undo(before, after, force=True)

    assert (forced.done, forced.foreign) == (True, ("notes.md",))
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"
    assert (work / "src" / "main.py").exists()
    assert (work / "other.txt").exists()
    assert forced.before is not None
    assert forced.after is not None
    await checkpoints.undo(forced.before, forced.after)
    assert picture(work) == standing


async def test_a_file_that_somebody_already_brought_back_is_no_conflict(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    (work / "notes.md").write_text("by the turn")
    (work / "run.sh").write_text("by the turn")
    after = await checkpoints.take(1, label="after")
    (work / "notes.md").write_text("one\ntwo\nthree\n")

    result = await checkpoints.undo(before, after)

    assert (result.done, result.restored) == (True, ("run.sh",))


async def test_a_directory_of_the_turn_stays_if_somebody_put_a_file_into_it(
    checkpoints: Checkpoints, work: Path
) -> None:
    before = await checkpoints.take(1)
    (work / "made").mkdir()
    (work / "made" / "by-turn.txt").write_text("turn")
    after = await checkpoints.take(1, label="after")
    (work / "made" / "by-person.txt").write_text("person")

    result = await checkpoints.undo(before, after)

    assert (result.done, result.not_empty) == (True, ("made",))
    assert [path.name for path in (work / "made").iterdir()] == ["by-person.txt"]


@pytest.mark.parametrize("direction", ["file to directory", "directory to file"])
async def test_a_file_and_a_directory_change_places(checkpoints: Checkpoints, work: Path, direction: str) -> None:
    start = picture(work)
    before = await checkpoints.take(1)
    if direction == "file to directory":
        (work / "notes.md").unlink()
        (work / "notes.md" / "inner").mkdir(parents=True)
        (work / "notes.md" / "inner" / "file").write_text("inside")
    else:
        shutil.rmtree(work / "src")
        (work / "src").write_text("a file now")
    after = await checkpoints.take(1, label="after")
    changed = picture(work)

    result = await checkpoints.undo(before, after)
    assert result.done
    assert picture(work) == start

    assert result.before is not None
    assert result.after is not None
    await checkpoints.undo(result.before, result.after)
    assert picture(work) == changed


async def test_what_stands_in_the_way_of_a_file_is_foreign_and_what_no_checkpoint_has_is_never_removed(
    checkpoints: Checkpoints, work: Path
) -> None:
    (work / ".gitignore").write_text("*.ignored\n")
    before = await checkpoints.take(1)
    (work / "notes.md").unlink()
    (work / "notes.md").mkdir()
    after = await checkpoints.take(1, label="after")
    (work / "notes.md" / "person.txt").write_text("person")
    (work / "notes.md" / "precious.ignored").write_text("in no checkpoint")
    standing = picture(work)

    refused = await checkpoints.undo(before, after)

    assert refused.foreign == ("notes.md/person.txt", "notes.md/precious.ignored")
    with pytest.raises(CheckpointError, match=r"precious\.ignored.* would be lost"):
        await checkpoints.undo(before, after, force=True)
    assert picture(work) == standing

    (work / "notes.md" / "precious.ignored").unlink()
    assert (await checkpoints.undo(before, after, force=True)).done
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"


async def test_a_symlink_in_the_place_of_a_directory_is_never_followed(
    checkpoints: Checkpoints, work: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("not ours")
    before = await checkpoints.take(1)
    (work / "src" / "main.py").write_text("by the turn")
    after = await checkpoints.take(1, label="after")
    (work / "src").rename(tmp_path / "moved")
    (work / "src").symlink_to(outside)

    refused = await checkpoints.undo(before, after)
    forced = await checkpoints.undo(before, after, force=True)

    assert set(refused.foreign) == {"src", "src/main.py"}
    assert forced.done
    assert (outside / "main.py").read_text() == "not ours"
    assert not (work / "src").is_symlink()
    assert (work / "src" / "main.py").read_text() == "print('hello')\n"


async def test_a_hard_link_outside_keeps_its_contents(checkpoints: Checkpoints, work: Path, tmp_path: Path) -> None:
    before = await checkpoints.take(1)
    (work / "notes.md").write_text("by the turn")
    after = await checkpoints.take(1, label="after")
    os.link(work / "notes.md", tmp_path / "twin")

    result = await checkpoints.undo(before, after)

    assert result.done
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"
    assert (tmp_path / "twin").read_text() == "by the turn"


async def test_names_that_are_not_text_come_back(checkpoints: Checkpoints, work: Path) -> None:
    names = [
        b"with\nnewline",
        b"-rf",
        b"caf\xe9",
        b'"quoted"',
        b" leading",
        b"back\\slash",
        b"\xff\xfe",
        b"*?[",
        b"t\tab",
    ]
    files = [work / os.fsdecode(name) for name in names]
    for file in files:
        file.write_bytes(b"contents of " + os.fsencode(file.name))
    start = picture(work)
    before = await checkpoints.take(1)
    for file in files[::2]:
        file.unlink()
    for file in files[1::2]:
        file.write_text("changed")
    after = await checkpoints.take(1, label="after")
    changes = await checkpoints.changes(before, after)

    assert set(changes.deleted) == {file.name for file in files[::2]}
    assert set(changes.modified) == {file.name for file in files[1::2]}
    assert (await checkpoints.undo(before, after)).done
    assert picture(work) == start


async def test_checkpoints_of_one_process_are_undone_by_another(
    open_checkpoints: Callable[..., Checkpoints], work: Path
) -> None:
    start = picture(work)
    before = await open_checkpoints().take(1)
    change_everything(work)
    after = await open_checkpoints().take(1, label="after")

    assert open_checkpoints().list() == (before, after)
    assert (await open_checkpoints().undo(before, after)).done
    assert picture(work) == start


async def test_a_rule_that_the_turn_removed_does_not_make_old_files_new(checkpoints: Checkpoints, work: Path) -> None:
    """What was ignored before may be older than the turn: an undo that removed it would lose it."""
    (work / ".gitignore").write_text("secret/\n")
    (work / "secret").mkdir()
    (work / "secret" / "key").write_text("old")
    before = await checkpoints.take(1)
    (work / ".gitignore").write_text("")
    (work / "fresh").write_text("new")
    after = await checkpoints.take(1, label="after")

    changes = await checkpoints.changes(before, after)
    await checkpoints.undo(before, after)

    assert (changes.added, changes.modified) == (("fresh",), (".gitignore",))
    assert (work / "secret" / "key").read_text() == "old"


async def test_a_file_that_is_kept_stays_kept_when_a_rule_of_the_turn_ignores_it(
    checkpoints: Checkpoints, work: Path
) -> None:
    before = await checkpoints.take(1)
    (work / ".gitignore").write_text("*.md\nsrc/\n")
    (work / "notes.md").write_text("changed and ignored")
    (work / "src" / "main.py").unlink()
    after = await checkpoints.take(1, label="after")

    changes = await checkpoints.changes(before, after)
    await checkpoints.undo(before, after)

    assert (changes.added, changes.modified, changes.deleted) == ((".gitignore",), ("notes.md",), ("src/main.py",))
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"
    assert (work / "src" / "main.py").exists()
    assert (work / "src" / "deep" / "data.bin").exists()
