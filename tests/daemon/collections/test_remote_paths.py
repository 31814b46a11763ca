"""A profile from elsewhere cannot bring files of this machine into a build."""

from pathlib import Path
from typing import Any

import pytest

from amplifierd.exceptions import ProfileCompilationError


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the user's, also as `~/private`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / "private"
    directory.mkdir()
    (directory / "key.md").write_text("s3cr3t\n")
    return directory


@pytest.mark.parametrize(
    "extra",
    [
        "context:\n  x: ~/private",
        "context:\n  x: {private}",
        "context:\n  x: file://{private}",
        "context:\n  x: zip+file://{private}/a.zip",
        "agents:\n  x: ~/private/key.md",
        "tools:\n  - module: tool-x\n    source: {private}",
    ],
)
async def test_a_fetched_profile_names_no_path_of_this_machine(
    home: Any, new_repository: Any, text: Any, private: Path, extra: str
) -> None:
    profile = text("base", extra=extra.format(private=private))
    await home.collections.add("team", new_repository("origin", {"profiles/base.md": profile}).source, compile=False)

    with pytest.raises(ProfileCompilationError, match="bad-ref: local path in a remote profile") as caught:
        await home.profiles.compile("team/base")

    assert caught.value.code == "bad-ref"
    assert not any("s3cr3t" in path.read_text() for path in home.paths.profiles.rglob("key.md"))


async def test_a_collection_of_this_machine_may(home: Any, text: Any, private: Path, tmp_path: Path) -> None:
    profiles = tmp_path / "mine" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "base.md").write_text(text("base", extra="context:\n  x: ~/private"))
    await home.collections.add("mine", str(tmp_path / "mine"), compile=False)

    build = await home.profiles.compile("mine/base")

    assert (build.path / "contexts" / "x" / "key.md").read_text() == "s3cr3t\n"
