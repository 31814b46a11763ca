"""A directory that becomes a link while a tool is at work leads no write outside."""

from pathlib import Path
from typing import Any

from swapped_directory import swapped

ROUNDS = 60


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


async def test_a_directory_swapped_for_a_link_during_writes_lets_nothing_out(
    mount_files: Any, tmp_path_factory: Any
) -> None:
    files = await mount_files()
    outside: Path = tmp_path_factory.mktemp("outside")
    place = files.folder / "place"
    place.mkdir()
    (place / "old.txt").write_text("old text")
    (outside / "old.txt").write_text("old text")

    with swapped(place, outside):
        for number in range(ROUNDS):
            await files.write(f"place/new-{number}.txt", "written")
            await files.edit("place/old.txt", "old", "new")
            await files.edit("place/old.txt", "new", "old")

    assert contents(outside) == {"old.txt": "old text"}
