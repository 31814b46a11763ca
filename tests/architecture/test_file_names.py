"""A file is named after the noun it holds: in the daemon's library a name means one file."""

from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "amplifierd"
EDGES = {"api", "control", "http"}  # their files are named after what they serve: `server/api/settings.py`


def test_no_two_files_of_the_library_have_one_name() -> None:
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if not EDGES & {*place.parts} and not path.stem.startswith("__"):
            found[path.name].append(place.as_posix())

    assert len(found) > 100
    assert [places for places in found.values() if len(places) > 1] == []
