"""`amplifier tool`: the tools of an agent, and calls by hand."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from plans import plan_file

Say = Callable[..., Any]


def sessions(say: Say) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(say("session", "list", "--json").out)
    return found


def test_tools_are_listed_and_shown_as_the_model_is_told_of_them(say: Say) -> None:
    listed = json.loads(say("tool", "list", "--json").out)
    text = say("tool", "info", "read_file").out

    assert "read_file" in [tool["name"] for tool in listed]
    assert "file_path" in text
    assert json.loads(say("tool", "info", "write", "--json").out)["name"] == "write_file"
    assert sessions(say) == []


def test_a_tool_is_called_and_what_it_did_can_be_undone(say: Say, amplifier: Any) -> None:
    called = say("tool", "invoke", "write_file", "file_path=new.txt", "content=new", "--json")

    outcome = json.loads(called.out)
    assert (called.code, outcome["ran"], outcome["success"]) == (0, True, True), called.err
    assert (amplifier.work / "new.txt").read_text().strip() == "new"
    assert [(each["status"], each["tags"]) for each in sessions(say)] == [("completed", ["tool-call"])]
    assert say("session", "undo", outcome["session_id"], "--files").code == 0
    assert not (amplifier.work / "new.txt").exists()


def test_what_the_agent_would_ask_about_is_asked(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [], guarded=True)

    denied = say("tool", "invoke", "bash", "command=touch made", "--plan", plan)
    assert (denied.code, (amplifier.work / "made").exists()) == (1, False)
    assert "--yes" in denied.out

    allowed = say("tool", "invoke", "bash", "command=touch made", "--plan", plan, "--yes")
    assert (allowed.code, (amplifier.work / "made").exists()) == (0, True), allowed.err


def test_the_policy_of_the_session_holds(say: Say, amplifier: Any) -> None:
    secret = amplifier.home / "config/secrets.yaml"
    secret.parent.mkdir(parents=True)
    secret.write_text("api_keys: {provider-x: k-12345}\n")

    said = say("tool", "invoke", "read_file", f"file_path={secret}")

    assert (said.code, "k-12345" in said.out) == (1, False)


def test_an_agent_whose_providers_have_no_key_still_has_tools(say: Say) -> None:
    said = say("tool", "invoke", "glob", "pattern=*.md", "--profile", "base")

    assert (said.code, "notes.md" in said.out) == (0, True), said.err


def test_input_comes_as_json_from_a_file_or_a_pipe(say: Say, amplifier: Any) -> None:
    (amplifier.work / "call.json").write_text('{"file_path": "notes.md", "limit": 1}')

    from_file = say("tool", "invoke", "read_file", "--input", "@call.json", "--json")
    from_pipe = say("tool", "invoke", "read_file", "limit=1", "--input", "-", stdin='{"file_path": "notes.md"}')

    assert json.loads(from_file.out)["output"]["lines_read"] == 1
    assert json.loads(from_pipe.out)["lines_read"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["raed_file"], ["there is no tool 'raed_file'", "did you mean read_file"]),
        (["read_file", "file_pat=x"], ["takes no 'file_pat'", "did you mean file_path?"]),
        (["read_file", "notes.md"], ["is not KEY=VALUE", "file_path=VALUE"]),
        (["read_file", "--input", "[1]"], ["not an object"]),
        (["read_file", "--input", "{"], ["not JSON"]),
        (["read_file", "--input", "@nothing"], ["nothing cannot be read"]),
        (["read_file", "--profile", "base", "--bundle", "x"], ["use one of them"]),
    ],
)
def test_what_cannot_be_called_is_told_and_leaves_no_session(say: Say, arguments: list[str], words: list[str]) -> None:
    said = say("tool", "invoke", *arguments)

    assert said.code == 2
    assert [word for word in words if word not in said.err] == []
    assert sessions(say) == []


def test_a_failed_call_exits_with_1_and_says_why(say: Say) -> None:
    said = say("tool", "invoke", "read_file", "file_path=nothing.md")

    assert (said.code, "nothing.md" in said.out) == (1, True)
