"""`extends` is read in one place, and means the same to whoever asks."""

import pytest

from amplifierd.identifiers import ProfileId
from amplifierd.profiles.documents.document import Extends


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("base", Extends("base")),
        ("team/base", Extends("base", "team")),
        ("team:base", Extends("base", "team")),
        ("team:profiles/base.md", Extends("base", "team")),
        ("team/profiles/base.md", None),
        ("../base", None),
        ("Base", None),
        ("", None),
    ],
)
def test_every_form_is_read(written: str, meant: Extends | None) -> None:
    assert Extends.parse(written) == meant


def test_a_bare_name_is_looked_for_nearby_and_never_means_the_child_itself() -> None:
    child = ProfileId("team", "child")

    assert Extends("base").places(child) == ["team/base", "local/base"]
    assert Extends("child").places(child) == ["local/child"]
    assert Extends("base", "other").places(child) == ["other/base"]
