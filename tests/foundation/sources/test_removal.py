"""Removing a tree: everything in it goes, and nothing around it changes."""

import stat
from pathlib import Path

from other_user import as_another_user, place_of_another_user

from amplifier_foundation.sources.store import remove


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_tree_with_closed_directories_is_removed() -> None:
    with place_of_another_user() as place, as_another_user():
        closed = place / "tree/closed"
        closed.mkdir(parents=True)
        (closed / "file").write_text("x")
        closed.chmod(0o500)

        remove(place / "tree")

        assert list(place.iterdir()) == []


def test_the_directory_around_a_tree_that_cannot_be_removed_keeps_its_mode() -> None:
    with place_of_another_user() as place, as_another_user():
        (place / "around/tree").mkdir(parents=True)
        (place / "around").chmod(0o555)

        remove(place / "around/tree")

        assert mode(place / "around") == 0o555
        (place / "around").chmod(0o755)


def test_what_a_link_in_a_closed_directory_leads_to_keeps_its_mode() -> None:
    with place_of_another_user() as place, as_another_user():
        (place / "elsewhere").mkdir(mode=0o755)
        closed = place / "tree"
        closed.mkdir()
        (closed / "link").symlink_to(place / "elsewhere")
        closed.chmod(0o500)

        remove(closed)

        assert ([path.name for path in place.iterdir()], mode(place / "elsewhere")) == (["elsewhere"], 0o755)
