"""Sources that name a place on this machine."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_core.local_sources import path_of_source


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("/srv/m", "/srv/m"),
        (Path("/srv/m"), "/srv/m"),
        ("file:///srv/a%20b", "/srv/a b"),
        ("file://localhost/srv/m", "/srv/m"),
        ("file://elsewhere/srv/m", None),
        ("file://./m", None),
        ("./m", None),
        ("git+https://host/x", None),
        ("foundation/base", None),
        (None, None),
        ({"collection": "c"}, None),
        ("", None),
    ],
)
def test_only_absolute_paths_and_urls_of_this_machine_are_places(source: Any, path: str | None) -> None:
    assert path_of_source(source) == (Path(path) if path else None)
