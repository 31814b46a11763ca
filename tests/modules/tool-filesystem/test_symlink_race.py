"""A directory that becomes a link while a tool is at work leads no write outside."""

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

ROUNDS = 60


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_directory_swapped_for_a_link_during_writes_lets_nothing_out(
    mount_files: Any, tmp_path_factory: Any
) -> None:
    files = await mount_files()
    outside: Path = tmp_path_factory.mktemp("outside")
    place, aside = files.folder / "place", files.folder / "aside"
    place.mkdir()
    (place / "old.txt").write_text("old text")
    (outside / "old.txt").write_text("old text")
    stopped = threading.Event()

    def swap() -> None:
        while not stopped.is_set():
            place.rename(aside)
            with suppress(FileExistsError):  # a tool has made it anew
                place.symlink_to(outside)
            place.unlink() if place.is_symlink() else shutil.rmtree(place)
            with suppress(OSError):
                aside.rename(place)
            if aside.exists():
                shutil.rmtree(place)
                aside.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(ROUNDS):
            await files.write(f"place/new-{number}.txt", "written")
            await files.edit("place/old.txt", "old", "new")
            await files.edit("place/old.txt", "new", "old")
    finally:
        stopped.set()
        swapping.join()

    assert names_in(outside) == ["old.txt"]
    assert (outside / "old.txt").read_text() == "old text"
