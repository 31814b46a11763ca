"""`amplifier profile`: from a new file to a build, and what is said about mistakes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal

from amplifier_cli.open_home import ProgressLine
from amplifier_foundation.sources import ProgressEvent

Say = Callable[..., Any]


def test_profiles_are_listed_and_shown_with_what_they_inherit(say: Say) -> None:
    listed = {each["profile_id"]: each for each in json.loads(say("profile", "list", "--json").out)}
    shown = json.loads(say("profile", "show", "offline", "--json").out)

    assert listed["foundation/offline"]["valid"]
    assert "foundation/coding" in say("profile", "list").out
    assert [tool["module"] for tool in shown["sections"]["tools"]] == ["tool-filesystem", "tool-search", "tool-todo"]
    assert "module: provider-mock" in say("profile", "show", "foundation/offline").out


def test_a_new_profile_is_valid_compiles_and_runs(say: Say, amplifier: Any) -> None:
    made = say("profile", "new", "helper", "--extends", "offline", "--description", "Helps: with everything")
    assert made.code == 0
    assert (amplifier.home / "config/profiles/helper.md").is_file()

    assert say("profile", "validate", "helper").code == 0
    built = json.loads(say("profile", "compile", "helper", "--json").out)
    status = json.loads(say("profile", "status", "helper", "--json").out)

    assert (built["profile"], status[0]["status"]) == ("local/helper", "fresh")
    assert say("profile", "verify", "helper").code == 0
    assert say("run", "--profile", "helper", "--frozen", "List files").code == 0
    assert say("profile", "new", "helper").code == 2
    assert say("profile", "new", "Not A Name").code == 2


def test_a_damaged_build_is_found(say: Say) -> None:
    built = json.loads(say("profile", "compile", "offline", "--json").out)
    file = next(Path(built["path"]).rglob("common-agent-base.md"))
    file.chmod(0o600)
    file.write_text("changed")

    said = say("profile", "verify", "offline")

    assert (said.code, "stale" in said.out) == (1, True)


def test_a_build_is_published_and_fetched_by_hand(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = say("profile", "publish", "offline")
    monkeypatch.setenv("AMPLIFIERD_BUILDS__URL", str(tmp_path / "depot"))
    published = json.loads(say("profile", "publish", "offline", "--json").out)
    monkeypatch.setenv("AMPLIFIERD_HOME", str(tmp_path / "there"))
    fetched = say("profile", "fetch", "foundation/offline", published["build"])
    unknown = say("profile", "fetch", "offline", "0" * 64)

    assert (nowhere.code, "builds.url" in nowhere.err) == (1, True)
    assert (tmp_path / "depot" / published["archive"]).is_file()
    assert (fetched.code, published["build"] in fetched.out) == (0, True)
    assert (unknown.code, "depot does not have it" in unknown.err) == (1, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\nprofile: {name: mine, version: 1.0.0, schema_version: 2\n---\n", ["mine.md", "1 error and 0 warnings"]),
        (
            "---\nprofile: {name: mine, version: 1.0.0, schema_version: 2}\ntool: []\n---\n",
            ["mine.md", "tool", "3 warnings"],
        ),
        (
            "---\nprofile: {name: mine, version: 1.0.0, extends: foundation/bse, schema_version: 2}\n---\n",
            ["mine.md", "foundation/bse"],
        ),
    ],
)
def test_a_mistake_in_a_profile_is_shown_with_its_place(say: Say, amplifier: Any, text: str, words: list[str]) -> None:
    file = amplifier.work / "mine.md"
    file.write_text(text)

    said = say("profile", "validate", "mine.md")

    assert said.code == 1
    assert [word for word in [*words, "mine.md has 1 error and "] if word not in said.out] == []


def test_a_module_that_does_not_exist_is_named_when_the_profile_is_compiled(say: Say, amplifier: Any) -> None:
    say("profile", "new", "helper", "--extends", "offline")
    file = amplifier.home / "config/profiles/helper.md"
    file.write_text(
        file.read_text().replace("schema_version: 2\n", "schema_version: 2\n\ntools:\n- module: tool-nothing\n")
    )

    said = say("profile", "compile", "helper")

    assert (said.code, "tool-nothing" in said.err) == (1, True)


def test_a_file_whose_name_no_profile_can_have_is_listed_and_what_to_do_is_said(say: Say, amplifier: Any) -> None:
    (amplifier.home / "config/profiles").mkdir(parents=True)
    (amplifier.home / "config/profiles/My Helper.md").write_text("---\nprofile: {version: 1.0.0}\n---\n")

    listed = say("profile", "list")
    assert (listed.code, "local/My Helper" in listed.out) == (0, True)
    refused = say("profile", "validate", "My Helper")
    assert (refused.code, "fix: give the file another name" in refused.err) == (2, True)


def test_an_unknown_profile_gets_a_suggestion(say: Say) -> None:
    assert "did you mean coding?" in say("profile", "show", "codng").err
    assert say("profile", "validate", "nothing.md").code == 2


def test_a_file_that_lacks_what_makes_it_a_profile_is_not_passed_over_in_silence(say: Say, amplifier: Any) -> None:
    file = amplifier.home / "config/profiles/mine.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("---\nextends: foundation/offline\n---\n")

    for typed in ("mine", "local/mine"):
        said = say("profile", "show", typed)

        assert said.code == 2
        assert f"{file} has no 'profile' section" in said.err
        assert f"amplifier profile validate {file}" in said.err


def test_a_terminal_shows_what_is_being_compiled_fetched_and_installed(
    amplifier: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(amplifier, "profile", "compile", "offline")
    terminal.expect("compiling profile foundation/offline")
    assert terminal.end() == 0

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    line = ProgressLine()
    line(ProgressEvent("source", "git+file:///x", "fetching", 3 * 1024 * 1024, 12 * 1024 * 1024))
    line(ProgressEvent("packages", "tool-a", "fetching"))
    line.clear()

    told = capsys.readouterr().err.split("\r\x1b[2K")
    assert told == [
        "",
        "[#####...............] getting source git+file:///x (3.0 of 12.0 MiB)",
        "installing packages for tool-a",
        "",
    ]
