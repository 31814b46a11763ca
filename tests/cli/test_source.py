"""`amplifier source`: sources looked at, fetched, and removed from the cache."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, use_plain_git

Say = Callable[..., Any]


@pytest.fixture
def repository(tmp_path: Path, say: Say, amplifier: Any, monkeypatch: pytest.MonkeyPatch) -> Repository:
    use_plain_git(monkeypatch)
    monkeypatch.setenv("AMPLIFIERD_HOME", str(amplifier.home))
    made = Repository(tmp_path / "origin")
    made.commit({"a/file.md": "one\n"})
    return made


def test_a_source_is_fetched_and_a_newer_commit_is_seen(say: Say, repository: Repository) -> None:
    source = f"{repository.source}@main#subdirectory=a"

    first = json.loads(say("source", "fetch", source, "--json").out)
    assert (Path(first["path"]) / "file.md").read_text() == "one\n"
    assert say("source", "fetch", source).out.strip() == first["path"]

    second = repository.commit({"a/file.md": "two\n"})
    status = json.loads(say("source", "show", source, "--json").out)["status"]
    assert (status["cached_commit"], status["remote_commit"], status["has_update"]) == (first["commit"], second, True)
    assert "Update available" in say("source", "show", source).out

    assert json.loads(say("source", "fetch", source, "--refresh", "--json").out)["commit"] == second
    assert {each["version"] for each in json.loads(say("source", "show", "--json").out)} == {first["commit"], second}


def test_only_what_nothing_refers_to_is_pruned(say: Say, repository: Repository) -> None:
    loose = json.loads(say("source", "fetch", repository.source, "--json").out)["commit"]
    profile = "---\nprofile: {name: p, version: 1.0.0, extends: foundation/offline, schema_version: 2}\n---\n"
    kept = repository.commit({"p.md": profile})
    say("collection", "add", "team", repository.source, "--no-compile")

    would = say("source", "prune", "--older-than", "0", "--dry-run")
    assert (loose in would.out, kept in would.out, "1 entry would be removed" in would.out) == (True, False, True)
    assert "0 entries" in say("source", "prune").out

    removed = json.loads(say("source", "prune", "--older-than", "0", "--json").out)["removed"]
    assert [Path(path).name for path in removed] == [loose]
    left = json.loads(say("source", "show", "--json").out)
    assert [(each["version"], each["is_used"]) for each in left] == [(kept, True)]


def test_a_path_means_the_same_from_anywhere(say: Say, amplifier: Any) -> None:
    assert say("source", "fetch", "./notes.md").out.strip() == str(amplifier.work / "notes.md")
    assert json.loads(say("source", "show", "./notes.md", "--json").out)["kind"] == "file"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fetch", "git+file:///nowhere/at/all"], 1, ["file:///nowhere/at/all"]),
        (["fetch", "notes.md"], 2, ["./notes.md"]),
        (["fetch", "git+nothing"], 1, ["git+nothing"]),
        (["fetch", "git+https://example.invalid/a/b@main", "--offline"], 1, ["offline"]),
        (["prune", "--older-than", "-1"], 2, ["--older-than"]),
    ],
)
def test_what_cannot_be_fetched_is_told(say: Say, arguments: list[str], code: int, words: list[str]) -> None:
    said = say("source", *arguments)

    assert said.code == code
    assert [word for word in words if word not in said.err] == []


def test_a_password_in_an_address_is_not_shown(say: Say) -> None:
    said = say("source", "show", "git+https://me:hunter2@example.invalid/a/b@main", "--offline")

    assert "hunter2" not in said.out + said.err
