"""Taking a checkpoint: what is kept, what is not and why, and how little an unchanged tree costs."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import warm_python
from other_user import as_another_user, place_of_another_user

from amplifierd.checkpoints import Checkpoints
from amplifierd.exceptions import CheckpointError, FormatUnsupportedError

from .conftest import picture


def kept_files(checkpoints: Checkpoints, tmp_path: Path, tree: str) -> set[str]:
    """Return what git finds in a tree of the store."""
    store = tmp_path / "state" / "checkpoints" / "store"
    command = ["git", f"--git-dir={store}", "ls-tree", "-r", "-z", "--name-only", tree]
    listing = subprocess.run(command, check=True, capture_output=True).stdout
    return {os.fsdecode(name) for name in listing.split(b"\0") if name}


async def test_a_checkpoint_says_what_it_keeps(checkpoints: Checkpoints, work: Path, tmp_path: Path) -> None:
    checkpoint = await checkpoints.take(3, label="before the turn")

    size = sum(len(contents) for kind, _, contents in picture(work).values())
    assert (checkpoint.turn, checkpoint.label) == (3, "before the turn")
    assert (checkpoint.complete, checkpoint.reason, checkpoint.unreadable) == (True, "", ())
    assert (checkpoint.files, checkpoint.bytes) == (5, size)
    assert checkpoints.get(checkpoint.id) == checkpoint
    assert kept_files(checkpoints, tmp_path, checkpoint.tree) == {
        "link",
        "notes.md",
        "run.sh",
        "src/deep/data.bin",
        "src/main.py",
    }


async def test_git_finds_nothing_wrong_with_the_store(checkpoints: Checkpoints, work: Path, tmp_path: Path) -> None:
    (work / "large").write_bytes(os.urandom(3 * 1024 * 1024))
    (work / "twin").write_bytes((work / "large").read_bytes())
    checkpoint = await checkpoints.take(1)
    (work / "notes.md").write_text("changed")
    await checkpoints.take(2)

    git = ["git", f"--git-dir={tmp_path / 'state' / 'checkpoints' / 'store'}"]
    checked = await asyncio.to_thread(
        subprocess.run, [*git, "fsck", "--strict", "--full"], capture_output=True, text=True, check=False
    )
    shown = await asyncio.to_thread(
        subprocess.run, [*git, "cat-file", "blob", f"{checkpoint.tree}:large"], capture_output=True, check=True
    )

    assert checked.returncode == 0, checked.stderr
    assert "error" not in checked.stderr
    assert shown.stdout == (work / "large").read_bytes()


async def test_an_unchanged_tree_writes_no_object(
    open_checkpoints: Callable[..., Checkpoints], work: Path, tmp_path: Path
) -> None:
    first = await open_checkpoints().take(1)
    packs = picture(tmp_path / "state" / "checkpoints" / "store")

    second = await open_checkpoints().take(2)

    assert (second.tree, second.manifest) == (first.tree, first.manifest)
    assert picture(tmp_path / "state" / "checkpoints" / "store") == packs


async def test_everything_is_private(checkpoints: Checkpoints, tmp_path: Path) -> None:
    await checkpoints.take(1)

    stored = picture(tmp_path / "state")
    assert {mode for kind, mode, _ in stored.values() if kind == "directory"} == {0o700}
    assert {mode for path, (_, mode, _) in stored.items() if b"pack-" in path} == {0o600}


async def test_a_change_that_size_and_time_do_not_show_is_seen(checkpoints: Checkpoints, work: Path) -> None:
    """A file written in the same tick of the clock as it was read, and one whose time was set back."""
    file = work / "notes.md"
    before = await checkpoints.take(1)
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_text("ONE\nTWO\nTHREE\n")
    os.utime(file, ns=times)

    changes = await checkpoints.changes(before)

    assert changes.modified == ("notes.md",)


async def test_what_was_written_while_it_was_read_is_read_again(checkpoints: Checkpoints, work: Path) -> None:
    for number in range(20):
        (work / "busy").write_text(f"{number:04d}")
        before = await checkpoints.take(number)
        (work / "busy").write_text(f"{number + 1:04d}")
        assert (await checkpoints.changes(before)).modified == ("busy",)


async def test_pipes_sockets_and_symlink_loops_are_no_trouble(checkpoints: Checkpoints, work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "loop").symlink_to("loop")
    (work / "up").symlink_to("..")
    (work / "self").symlink_to(work)
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(work)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        before = await checkpoints.take(1)
        (work / "loop").unlink()
        after = await checkpoints.take(2)
        await checkpoints.undo(before, after)

    assert before.complete
    assert before.files == 5 + 3
    assert (work / "loop").is_symlink()
    assert (work / "pipe").is_fifo()


async def test_a_working_directory_behind_a_symlink(tmp_path: Path, work: Path) -> None:
    (tmp_path / "alias").symlink_to(work)
    checkpoints = Checkpoints(tmp_path / "checkpoints", tmp_path / "alias")
    before = await checkpoints.take(1)
    (tmp_path / "alias" / "notes.md").write_text("changed")

    assert before.files == 5
    assert (await checkpoints.changes(before)).modified == ("notes.md",)


async def test_checkpoints_inside_the_working_directory_do_not_keep_themselves(work: Path) -> None:
    (work / "home").mkdir()
    (work / "home" / "token").write_text("secret")
    checkpoints = Checkpoints(work / ".state" / "checkpoints", work, exclude=[work / "home"])
    before = await checkpoints.take(1)
    again = await checkpoints.take(2)

    assert before.files == 5
    assert again.tree == before.tree
    assert not await checkpoints.remember(work / "home" / "token")


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"max_files": 4}, "more than 4 files (checkpoints.max_files)"),
        ({"max_bytes": 100}, "more than 100 bytes (checkpoints.max_bytes)"),
        ({"timeout_seconds": 1e-9}, "longer than 1e-09 s (checkpoints.timeout_seconds)"),
    ],
)
async def test_beyond_a_bound_only_touched_files_are_kept_and_the_checkpoint_says_so(
    open_checkpoints: Callable[..., Checkpoints], work: Path, bounds: dict[str, float], reason: str
) -> None:
    checkpoints = open_checkpoints(**bounds)
    start = picture(work)
    before = await checkpoints.take(1, touched=[work / "run.sh"])
    assert not before.complete
    assert reason in before.reason
    assert before.files == 1

    (work / "run.sh").write_text("#!/bin/sh\nexit\n")
    assert await checkpoints.remember(work / "notes.md")
    (work / "notes.md").write_text("changed")
    assert await checkpoints.remember(work / "made" / "deep" / "new.txt")
    (work / "made" / "deep").mkdir(parents=True)
    (work / "made" / "deep" / "new.txt").write_text("new")
    (work / "src" / "main.py").write_text("changed by a shell, which nobody saw")
    after = await checkpoints.take(2)
    changes = await checkpoints.changes(before, after)

    assert (changes.added, changes.modified) == (("made/deep/new.txt",), ("notes.md", "run.sh"))
    assert (changes.complete, changes.deleted) == (False, ())
    assert reason in changes.reason
    assert (await checkpoints.undo(before, after)).done
    (work / "src" / "main.py").write_bytes(start[b"src/main.py"][2])
    assert picture(work) == start


async def test_a_huge_sparse_file_is_beyond_the_bounds_and_is_not_read(checkpoints: Checkpoints, work: Path) -> None:
    with (work / "disk.img").open("wb") as file:
        file.truncate(3 * 1024**3)

    before = await checkpoints.take(1)

    assert not before.complete
    assert "checkpoints.max_bytes" in before.reason
    assert not await checkpoints.remember(work / "disk.img")


async def test_an_ignored_file_that_a_tool_is_about_to_write_is_remembered(
    checkpoints: Checkpoints, work: Path, tmp_path: Path
) -> None:
    (work / ".gitignore").write_text(".env\n*.out\n")
    (work / ".env").write_text("A=1\n")
    before = await checkpoints.take(1)
    assert before.complete
    assert await checkpoints.remember(work / ".env")
    assert await checkpoints.remember(Path("result.out"))
    (work / "loop").symlink_to("loop")
    assert await checkpoints.remember(work / "loop")
    (work / "loop").unlink()
    assert not await checkpoints.remember(tmp_path / "elsewhere")
    assert not await checkpoints.remember(work / ".git" / "config")
    (work / ".env").write_text("A=2\n")
    (work / "result.out").write_text("new")
    after = await checkpoints.take(2)

    changes = await checkpoints.changes(before, after)
    await checkpoints.undo(before, after)

    assert (changes.added, changes.modified) == (("result.out",), (".env",))
    assert (work / ".env").read_text() == "A=1\n"
    assert not (work / "result.out").exists()


async def test_a_tool_that_writes_through_a_symlink_has_its_target_remembered(
    open_checkpoints: Callable[..., Checkpoints], work: Path
) -> None:
    checkpoints = open_checkpoints(max_files=1)
    before = await checkpoints.take(1)
    await checkpoints.remember(work / "link")
    (work / "link").write_text("through the link")

    assert (await checkpoints.changes(before)).modified == ("notes.md",)


async def test_a_missing_working_directory_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="gone"):
        await Checkpoints(tmp_path / "checkpoints", tmp_path / "gone").take(1)


async def test_a_cancelled_checkpoint_leaves_nothing_and_the_next_one_works(
    checkpoints: Checkpoints, work: Path
) -> None:
    taking = asyncio.ensure_future(checkpoints.take(1))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking

    assert (await checkpoints.take(1)).complete


async def test_a_lost_or_damaged_cache_costs_time_and_nothing_else(
    open_checkpoints: Callable[..., Checkpoints], work: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "state" / "checkpoints" / "cache.json"
    first = await open_checkpoints().take(1)
    for contents in (b"", b"{", b"[]", b'{"format_version": 1, "files": {"a": 1}, "folders": {}}', b"\xff"):
        cache.write_bytes(contents)
        assert (await open_checkpoints().take(1)).tree == first.tree
    cache.unlink()
    assert (await open_checkpoints().take(1)).tree == first.tree


async def test_a_damaged_store_is_said_and_never_restored_from(
    open_checkpoints: Callable[..., Checkpoints], work: Path, tmp_path: Path
) -> None:
    checkpoints = open_checkpoints()
    before = await checkpoints.take(1)
    (work / "notes.md").write_text("changed")
    after = await checkpoints.take(2)
    for pack in (tmp_path / "state" / "checkpoints" / "store" / "objects" / "pack").glob("*.pack"):
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 0xFF
        pack.write_bytes(data)

    with pytest.raises(CheckpointError, match="damaged"):
        await open_checkpoints().undo(before, after)
    assert (work / "notes.md").read_text() == "changed"


async def test_a_pack_that_was_killed_before_it_had_its_index_is_removed_and_written_again(
    open_checkpoints: Callable[..., Checkpoints], work: Path, tmp_path: Path
) -> None:
    packs = tmp_path / "state" / "checkpoints" / "store" / "objects" / "pack"
    before = await open_checkpoints().take(1)
    (work / "notes.md").write_text("changed")
    lost = set(packs.glob("*.idx"))
    after = await open_checkpoints().take(2)
    (newest,) = set(packs.glob("*.idx")) - lost
    newest.unlink()
    records = tmp_path / "state" / "checkpoints" / "records.jsonl"
    records.write_text("".join(line for line in records.read_text().splitlines(True) if after.id not in line))

    again = await open_checkpoints().take(2)

    assert again.tree == after.tree
    assert {path.stem for path in packs.glob("*.pack")} == {path.stem for path in packs.glob("*.idx")}
    assert (await open_checkpoints().undo(before, again)).done
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"


async def test_records_of_a_newer_version_are_refused(
    open_checkpoints: Callable[..., Checkpoints], tmp_path: Path
) -> None:
    await open_checkpoints().take(1)
    records = tmp_path / "state" / "checkpoints" / "records.jsonl"
    records.write_text(records.read_text().replace('"format_version":1', '"format_version":2'))

    with pytest.raises(FormatUnsupportedError, match="has format 2"):
        await open_checkpoints().take(2)


async def test_records_that_were_files_of_their_own_are_read_and_come_first(
    open_checkpoints: Callable[..., Checkpoints], work: Path, tmp_path: Path
) -> None:
    first = await open_checkpoints().take(1, label="before")
    records = tmp_path / "state" / "checkpoints" / "records.jsonl"
    older = records.with_suffix("")
    older.mkdir()
    value = json.loads(records.read_text()) | {"id": "000007"}
    (older / "000007.json").write_text(json.dumps(value, indent=2) + "\n")
    records.unlink()
    (work / "notes.md").write_text("changed")

    checkpoints = open_checkpoints()
    taken = await checkpoints.take(1, label="after")

    assert [each.id for each in open_checkpoints().list()] == ["000007", taken.id]
    assert (await checkpoints.changes(replace(first, id="000007"), taken)).modified == ("notes.md",)
    assert (await checkpoints.undo(replace(first, id="000007"), taken)).done
    assert (work / "notes.md").read_text() == "one\ntwo\nthree\n"


async def test_a_record_that_a_crash_tore_is_passed_over(
    open_checkpoints: Callable[..., Checkpoints], tmp_path: Path
) -> None:
    first = await open_checkpoints().take(1)
    records = tmp_path / "state" / "checkpoints" / "records.jsonl"
    with records.open("a") as file:
        file.write(records.read_text()[:50])

    second = await open_checkpoints().take(2)

    assert [each.id for each in open_checkpoints().list()] == [first.id, second.id]


async def test_two_who_take_checkpoints_in_turn_give_no_id_twice(open_checkpoints: Callable[..., Checkpoints]) -> None:
    one, other = open_checkpoints(), open_checkpoints()

    taken = [await (one, other)[turn % 2].take(turn) for turn in range(4)]

    assert len({each.id for each in taken}) == 4
    assert [each.id for each in one.list()] == [each.id for each in taken]


DISK_FULL = """
import asyncio, os, resource, sys
from pathlib import Path
from amplifierd.checkpoints import Checkpoints
from amplifierd.exceptions import CheckpointError

async def main():
    work = Path(sys.argv[1])
    checkpoints = Checkpoints(Path(sys.argv[2]), work)
    (work / "large").write_bytes(os.urandom(3_000_000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    try:
        await checkpoints.take(1)
    except CheckpointError as error:
        print(error.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    before = await checkpoints.take(1)
    contents = (work / "large").read_bytes()
    (work / "large").unlink()
    (work / "notes.md").unlink()
    await checkpoints.undo(before, await checkpoints.take(2))
    print((work / "large").read_bytes() == contents, (work / "notes.md").exists(), len(checkpoints.list()))

asyncio.run(main())
"""


def test_a_full_disk_is_said_and_what_was_not_stored_does_not_count_as_stored(tmp_path: Path, work: Path) -> None:
    command = [sys.executable, "-c", DISK_FULL, work, tmp_path / "state"]

    done = warm_python.run(command, capture_output=True, text=True, check=True)

    first, second = done.stdout.splitlines()
    assert first.startswith("the checkpoint cannot be stored: ")
    assert second == "True True 4"


UNPRIVILEGED = """
import asyncio, os, sys
from pathlib import Path
from concurrent.futures import thread
from amplifierd.checkpoints import Checkpoints
os.setgroups([]); os.setgid(65534); os.setuid(65534)

async def main():
    work = Path(sys.argv[1])
    checkpoints = Checkpoints(Path(sys.argv[2]), work)
    (work / "closed").mkdir(); (work / "closed" / "in").write_text("x"); (work / "closed").chmod(0)
    (work / "mine").write_text("x"); (work / "mine").chmod(0)
    (work / "fixed").mkdir(); (work / "fixed" / "file").write_text("old"); (work / "fixed").chmod(0o555)
    before = await checkpoints.take(1)
    assert not before.complete and before.unreadable == ("closed", "mine"), before
    (work / "fixed").chmod(0o755); (work / "fixed" / "file").unlink(); (work / "fixed").chmod(0o555)
    after = await checkpoints.take(2)
    result = await checkpoints.undo(before, after)
    assert result.done and (work / "fixed" / "file").read_text() == "old", result
    assert oct((work / "fixed").stat().st_mode) == oct(0o40555)
    print("as it should be")

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_permission_files_are_reported_and_read_only_directories_are_opened_for_a_moment() -> None:
    with place_of_another_user() as base:  # tmp_path is below a directory that nobody else may enter
        work, state = base / "work", base / "state"
        with as_another_user():
            work.mkdir()
            state.mkdir()
        command = [sys.executable, "-c", UNPRIVILEGED, work, state]
        done = warm_python.run(command, capture_output=True, text=True, check=False)

    assert done.stdout == "as it should be\n", done.stderr
