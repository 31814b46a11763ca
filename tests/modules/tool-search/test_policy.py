"""What the session's policy keeps from both tools, and patterns that would keep others from ending."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ToolResult
from amplifier_kit.policy import PolicyError, SessionPolicy


@pytest.fixture
def home(search: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key in it, around the searched folder."""
    home: Path = search.folder.parent
    monkeypatch.setenv("HOME", str(home))
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("needle: a private key\n")
    (home / ".netrc").write_text("needle: a password\n")
    (home / "notes.txt").write_text("needle: harmless\n")
    return home


@pytest.mark.parametrize("path", ["~/.ssh", "~/.ssh/id_rsa", "~/.netrc", "/proc/self/environ", "/proc/self"])
async def test_a_secret_place_is_not_searched(
    search: Any, home: Path, code_of: Callable[[ToolResult], str], path: str
) -> None:
    result = await search.grep(".", path=path, output_mode="content")

    assert code_of(result) == "access_denied"
    assert f"not readable: {path.replace('~', str(home))} (policy.read.deny" in result.output
    assert result.error["rule"] == "read.deny"
    assert search.events == []


async def test_secret_places_below_the_searched_path_are_left_out(search: Any, home: Path) -> None:
    found = await search.grep("needle", path="~", include_ignored=True, output_mode="content")
    listed = await search.glob("**", path="~", include_ignored=True)

    assert [entry["content"] for entry in found.output["results"]] == ["needle: harmless"]
    assert sorted(match["path"] for match in listed.output["matches"]) == [str(home / "notes.txt"), str(search.folder)]
    assert (await search.glob("~/.ssh/*")).output["count"] == 0
    assert (await search.glob("*", path="~/.ssh")).error["code"] == "access_denied"


@pytest.mark.parametrize("mode", ["content", "files_with_matches", "count"])
async def test_a_link_to_a_secret_place_is_not_followed(search: Any, home: Path, mode: str) -> None:
    (search.folder / "key").symlink_to(home / ".ssh/id_rsa")
    (search.folder / "keys").symlink_to(home / ".ssh")
    (search.folder / "environ").symlink_to("/proc/self/environ")

    result = await search.grep(".", include_ignored=True, output_mode=mode)
    listed = await search.glob("**")

    assert (result.success, result.output["total_matches"]) == (True, 0)
    assert listed.output["matches"] == []
    for path in ("key", "keys", "environ"):
        assert (await search.grep(".", path=path)).error["code"] == "access_denied"


async def test_the_policy_of_the_session_can_close_and_open_places(search: Any, home: Path) -> None:
    rules = {"read": {"allow": ["/", "~/.ssh"], "deny": ["private", str(search.folder / "closed")]}}
    search.coordinator.register_capability("session.policy", SessionPolicy.of(rules, working_dir=search.folder))
    for path in ("a.txt", "deep/private/b.txt", "closed/c.txt", "deep/Private"):
        search.write(path)

    found = await search.grep("needle")
    listed = await search.glob("**", type="file")

    assert search.relative(found.output["files"]) == ["a.txt"]
    assert search.relative([match["path"] for match in listed.output["matches"]]) == ["a.txt"]
    assert (await search.grep("needle", path="~/.ssh")).output["total_matches"] == 1


async def test_the_lists_of_the_tool_open_nothing_that_the_policy_closes(search: Any, home: Path) -> None:
    config = {"allowed_paths": ["~/.ssh", "/proc"]}

    for path in ("~/.ssh", "/proc/self/environ"):
        assert (await search.grep("needle", path=path, config=config)).error["code"] == "access_denied"


async def test_another_implementation_of_the_policy_is_asked_about_everything(search: Any) -> None:
    class NothingNamedB:
        def check_read(self, path: Path | str) -> Path:
            if "b" in Path(path).name:
                raise PolicyError(f"not readable: {path}")
            return Path(path)

        def environment(self) -> dict[str, str]:
            return {}

    search.coordinator.register_capability("session.policy", NothingNamedB())
    for path in ("a.txt", "b.txt", "b/c.txt"):
        search.write(path)

    assert search.relative((await search.grep("needle")).output["files"]) == ["a.txt"]
    assert (await search.glob("**")).output["count"] == 1


async def test_a_pattern_that_makes_others_backtrack_is_searched_for_in_linear_time(search: Any) -> None:
    search.write("a.txt", "a" * 5000 + "b\n")

    for pattern in ("(a+)+$", "(a|aa)+$", "(.*)*c", "(x+x+)+y"):
        result = await search.grep(pattern, config={"timeout": 30})
        assert (result.success, result.output["total_matches"]) == (True, 0), pattern


async def test_names_are_matched_in_linear_time(search: Any) -> None:
    name = "a" * 200
    search.write(".git/HEAD", "")
    search.write(".gitignore", "*a" * 60 + "b\n" + "**/a*/" * 30 + "x\n")
    search.write("/".join(["aa"] * 40) + f"/{name}")
    hostile = "*a" * 60 + "b"

    assert (await search.grep("needle", glob=f"**/{hostile}")).output["total_matches"] == 0
    assert (await search.grep("needle", glob="**/a*/" * 30 + "x")).output["total_matches"] == 0
    assert (await search.glob(f"**/{hostile}", config={"respect_gitignore": True})).output["count"] == 0
    assert (await search.glob("**/a*/" * 30 + "x", exclude=[hostile])).output["count"] == 0
    assert (await search.glob(f"**/{name}", exclude=[hostile])).output["count"] == 1
