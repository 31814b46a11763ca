"""`amplifier collection`: where profiles come from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, use_plain_git, write_files

Say = Callable[..., Any]


def profile(name: str, **changes: str) -> str:
    head = {"name": name, "version": "1.0.0", "schema_version": "2", "extends": "foundation/offline", **changes}
    return "---\nprofile:\n" + "".join(f"  {key}: {value}\n" for key, value in head.items()) + "---\nBe brief.\n"


@pytest.fixture
def repository(tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> Repository:
    home = tmp_path / "home"
    use_plain_git(monkeypatch)
    monkeypatch.setenv("AMPLIFIERD_HOME", str(home))
    made = Repository(tmp_path / "origin")
    made.commit({"profiles/terse.md": profile("terse"), "agents/one.md": "---\nmeta: {name: one}\n---\nOne.\n"})
    return made


def test_a_repository_is_added_synced_and_removed(say: Say, repository: Repository) -> None:
    added = say("collection", "add", "team", repository.source)
    assert (added.code, "added with 1 profile" in added.out) == (0, True), added.err
    assert "amplifier run --profile team/terse" in added.out
    assert say("run", "--profile", "terse", "List files").code == 0

    commit = repository.commit({"profiles/other.md": profile("other")})
    checked = json.loads(say("collection", "sync", "team", "--check", "--json").out)["team"]
    assert (checked["status"], checked["commit_after"]) == ("updated", commit)
    synced = say("collection", "sync", "tea")
    assert (synced.code, "other: compiled" in synced.out) == (0, True), synced.err

    listed = {each["identifier"]: each for each in json.loads(say("collection", "list", "--json").out)}
    assert (listed["team"]["commit"], listed["team"]["profile_count"]) == (commit, 2)
    assert commit[:8] in say("collection", "list").out

    refused = say("collection", "remove", "team")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert say("collection", "remove", "team", "--force").code == 0
    assert "team" not in say("collection", "list").out


def test_only_a_profile_that_can_run_is_offered_to_be_run(say: Say, repository: Repository) -> None:
    tools = "tools:\n  - module: tool-days\n    source: ~/tool-days\n"
    local = profile("days").replace("---\nBe brief", f"{tools}---\nBe brief")
    repository.commit({"profiles/days.md": local})

    added = say("collection", "add", "team", repository.source)

    assert (added.code, "local path in a remote profile" in added.err) == (0, True), added.err
    assert "team/days: cannot run; see amplifier profile compile team/days" in added.out
    assert "--profile team/days" not in added.out
    assert "team/terse: amplifier run --profile team/terse" in added.out
    assert say("run", "--profile", "team/days", "Hi").code == 1
    assert say("profile", "compile", "team/days").code == 1


def test_what_lies_beside_the_profiles_is_shown(say: Say, repository: Repository) -> None:
    say("collection", "add", "team", repository.source, "--no-compile")

    shown = json.loads(say("collection", "show", "team", "--json").out)

    assert (shown["inventory"]["agents"], [each["name"] for each in shown["profiles"]]) == (
        ["agents/one.md"],
        ["terse"],
    )
    assert "team/terse" in say("collection", "show", "team").out


def test_a_directory_counts_from_where_the_command_is_typed(say: Say, amplifier: Any) -> None:
    write_files(amplifier.work / "mine", {"terse.md": profile("terse")})

    unclear = say("collection", "add", "mine", "mine")
    added = say("collection", "add", "mine", "./mine")

    assert (unclear.code, "./mine" in unclear.err) == (2, True)
    assert added.code == 0, added.err
    assert say("run", "--profile", "mine/terse", "List files").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["add", "team", "git+file:///nowhere/at/all"], 1, ["Failed to clone file:///nowhere/at/all"]),
        (["add", "../evil", "./x"], 1, ["../evil"]),
        (["add", "local", "./x"], 1, ["reserved"]),
        (["remove", "foundation", "--force"], 1, ["shipped with the distribution", "fix: "]),
        (["show", "fundation"], 2, ["there is no collection 'fundation'", "did you mean foundation?"]),
        (["sync", "nothing"], 2, ["amplifier collection list shows them"]),
        (["lst"], 2, ["list"]),
    ],
)
def test_what_cannot_be_done_is_told(say: Say, arguments: list[str], code: int, words: list[str]) -> None:
    said = say("collection", *arguments)

    assert said.code == code
    assert [word for word in words if word not in said.err] == []


def test_a_collection_that_fails_is_told_with_exit_code_1(say: Say, repository: Repository) -> None:
    say("collection", "add", "team", repository.source)
    repository.path.rename(repository.path.with_name("gone"))

    said = say("collection", "sync", "--json")

    results = json.loads(said.out)
    assert (said.code, results["team"]["status"], results["foundation"]["status"]) == (1, "error", "unchanged")
    assert say("run", "--profile", "team/terse", "List files").code == 0
