"""A directory that becomes a link while files are brought back leads nothing outside, and nothing of outside in."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from swapped_directory import swapped

from amplifierd.checkpoints import Checkpoints
from amplifierd.exceptions import CheckpointError

from .conftest import picture

ROUNDS = 12


async def test_an_undo_writes_and_removes_nothing_behind_a_link(
    open_checkpoints: Callable[..., Checkpoints], work: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("main.py", "new.txt", "canary.txt"):
        (outside / name).write_text("canary of outside\n")
    before_outside = picture(outside)
    checkpoints = open_checkpoints()
    before = await checkpoints.take(1)
    (work / "src/main.py").write_text("print('changed')\n")
    (work / "src/new.txt").write_text("new\n")
    after = await checkpoints.take(1, label="after")

    with swapped(work / "src", outside):
        for _ in range(ROUNDS):
            with suppress(CheckpointError, OSError):
                await checkpoints.undo(before, after, force=True)
            with suppress(CheckpointError, OSError):
                await checkpoints.undo(after, before, force=True)

    assert picture(outside) == before_outside
    assert not any(b"canary" in content for _, _, content in picture(work).values())
