"""Changes: what was added, modified and deleted, and the difference as text."""

import os
from pathlib import Path

from amplifierd.checkpoints import Checkpoints


async def test_changes_are_listed_and_shown_as_unified_text(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    (work / "notes.md").write_text("one\n2\nthree\n")
    (work / "src" / "main.py").unlink()
    (work / "new").mkdir()
    (work / "new" / "file.txt").write_text("fresh\n")
    (work / "void").mkdir()
    (work / "empty").rmdir()

    changes = await checkpoints.changes(before)

    assert (changes.added, changes.modified) == (("new/file.txt", "void/"), ("notes.md",))
    assert (changes.deleted, changes.complete, changes.is_cut) == (("empty/", "src/main.py"), True, False)
    assert "--- a/notes.md\n+++ b/notes.md\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n" in changes.diff
    assert "+++ b/new/file.txt\n@@ -0,0 +1 @@\n+fresh\n" in changes.diff
    assert "deleted file mode 100644" in changes.diff
    assert "diff --git a/void b/void\nnew directory mode 040755\n" in changes.diff


async def test_modes_symlinks_and_binary_files_are_part_of_the_difference(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    (work / "run.sh").chmod(0o644)
    (work / "notes.md").chmod(0o600)
    (work / "src").chmod(0o700)
    (work / "link").unlink()
    (work / "link").symlink_to("run.sh")
    (work / "src" / "deep" / "data.bin").write_bytes(b"\0\1\2")

    changes = await checkpoints.changes(before)

    assert changes.modified == ("link", "notes.md", "run.sh", "src/", "src/deep/data.bin")
    assert "diff --git a/run.sh b/run.sh\nold mode 100755\nnew mode 100644\n" in changes.diff
    assert "diff --git a/notes.md b/notes.md\nold mode 100644\nnew mode 100600\n" in changes.diff
    assert "diff --git a/src b/src\nold mode 040755\nnew mode 040700\n" in changes.diff
    assert "-notes.md\n\\ No newline at end of file\n+run.sh\n" in changes.diff
    assert "Binary files a/src/deep/data.bin and b/src/deep/data.bin differ" in changes.diff


async def test_nothing_changed(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)

    changes = await checkpoints.changes(before)

    assert (changes.added, changes.modified, changes.deleted, changes.diff) == ((), (), (), "")
    assert checkpoints.list() == (before,)


async def test_a_long_difference_is_cut_at_the_end_of_a_line(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    (work / "long.txt").write_text("a line that is added\n" * 100_000)

    changes = await checkpoints.changes(before)

    assert changes.is_cut
    assert len(changes.diff) < 1_100_000
    assert changes.diff.splitlines()[-2] == "+a line that is added"
    assert changes.diff.splitlines()[-1].endswith("was cut off here")


async def test_a_difference_of_files_that_are_not_text_is_text(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    (work / "latin.txt").write_bytes(b"caf\xe9\n")
    (work / os.fsdecode(b"\xff.txt")).write_text("x\n")

    changes = await checkpoints.changes(before)

    assert changes.diff.encode()
    assert "+caf\ufffd\n" in changes.diff
