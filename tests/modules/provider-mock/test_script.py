"""Scripts: which step answers which call, what a step may insist on, and the files they come from."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from amplifier_core.llm_errors import ConfigurationError, InvalidRequestError

CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "tool": "bash", "arguments": {}}]}
RESULT = {"role": "tool", "content": "2 failed", "tool_call_id": "1"}


async def test_steps_are_used_in_order_and_then_the_canned_answers_follow(desk: Any) -> None:
    one = desk({"script": ["one", {"text": "two"}], "responses": ["x", "y", "z"]})

    assert [await one.text() for _ in range(4)] == ["one", "two", "z", "x"]


@pytest.mark.parametrize(
    ("policy", "expected"), [("repeat_last", ["a", "b", "b", "b"]), ("rotate", ["a", "b", "a", "b"])]
)
async def test_a_script_can_go_on_after_its_last_step(desk: Any, policy: str, expected: list[str]) -> None:
    one = desk({"script": ["a", "b"], "on_exhausted": policy})

    assert [await one.text() for _ in range(4)] == expected


async def test_a_script_can_insist_on_its_end(desk: Any) -> None:
    one = desk({"script": ["a"], "on_exhausted": "error"})
    await one.text()

    with pytest.raises(InvalidRequestError, match="call 2; it has 1 steps"):
        await one.text()

    assert one.heard("llm:response")[-1][1]["status"] == "error"


@pytest.mark.parametrize(
    ("when", "messages", "holds"),
    [
        ({"contains": "bug"}, ["a bug"], True),
        ({"contains": "bug"}, ["a bug", "fine"], False),
        ({"regex": "^a.*g$"}, ["a bug"], True),
        ({"regex": "^b"}, ["a bug"], False),
        ({"role": "user"}, ["x"], True),
        ({"role": "tool"}, ["x"], False),
        ({"role": "tool", "tool": "bash"}, ["x", CALL, RESULT], True),
        ({"tool": "grep"}, ["x", CALL, RESULT], False),
        ({"contains": "failed"}, ["x", CALL, RESULT], True),
        ({"call": 1}, ["x"], True),
        ({"call": 2}, ["x"], False),
        ({"min_messages": 2}, ["x", "y"], True),
        ({"min_messages": 2}, ["x"], False),
        ({"contains": "x", "call": 2}, ["x"], False),
        ({"contains": "x"}, ["x", {"role": "user", "content": "y", "metadata": {"ephemeral": True}}], True),
    ],
)
async def test_a_step_is_used_when_all_its_conditions_hold(
    desk: Any, when: dict[str, Any], messages: list[Any], holds: bool
) -> None:
    one = desk({"script": [{"text": "chosen", "when": when}, "other"]})

    assert await one.text(*messages) == ("chosen" if holds else "other")


async def test_a_step_that_repeats_is_never_used_up(desk: Any) -> None:
    one = desk({"script": [{"text": "again", "when": {"contains": "x"}, "repeat": True}, "once"]})

    assert [await one.text(word) for word in ("x", "x", "y", "x")] == ["again", "again", "once", "again"]


@pytest.mark.parametrize(
    ("expectation", "words"),
    [
        ({"contains": "please"}, "contains 'please'"),
        ({"tools_include": ["bash", "grep"]}, r"tools_include \['grep'\]"),
        ({"min_messages": 3}, "min_messages 3, there are 1"),
    ],
)
async def test_a_failed_assertion_names_the_expectation(desk: Any, expectation: dict[str, Any], words: str) -> None:
    one = desk({"script": [{"text": "x", "assert": expectation}]})

    with pytest.raises(InvalidRequestError, match=words):
        await one.ask("do it", tools=("bash",))


async def test_texts_quote_the_conversation(desk: Any) -> None:
    template = "{{last_user}} / {{ last_tool_result }} / {{call_count}} / {{other}}"
    one = desk({"script": [{"text": template, "thinking": "{{call_count}}"}]})

    response = await one.ask("Run it", CALL, RESULT)

    assert response.content[0].thinking == "1"  # type: ignore[union-attr]
    assert response.content[1].text == "Run it / 2 failed / 1 / {{other}}"  # type: ignore[union-attr]


async def test_a_scripted_call_to_a_tool_that_is_not_offered_is_returned(desk: Any, calls: Any) -> None:
    one = desk({"script": [{"tool_calls": [{"name": "nowhere"}]}]})

    assert calls(await one.ask("x", tools=("bash",))) == [("nowhere", {})]


async def test_an_error_step_answers_one_attempt_and_a_retry_takes_the_next(desk: Any) -> None:
    one = desk({"script": [{"error": "rate_limit"}, {"error": {"type": "stream"}}, "at last"], "max_retries": 2})

    assert await one.text() == "at last"
    assert one.names("provider:retry") == ["provider:retry"] * 2


async def test_the_same_script_as_yaml_and_as_json_gives_identical_events(desk: Any, tmp_path: Path) -> None:
    script = [{"thinking": "ö", "text": "one two", "tool_calls": [{"name": "x", "arguments": {"n": [1, None]}}]}, "end"]
    (tmp_path / "script.json").write_text(json.dumps(script), encoding="utf-8")
    (tmp_path / "script.yml").write_text(yaml.safe_dump(script), encoding="utf-8")

    runs = []
    for source in ("script.json", "script.yml", script):
        one = desk({"script": source})
        for _ in script:
            await one.ask("Hello")
        runs.append(one.heard())

    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]) > 8


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gone.json", None, "gone.json: No such file"),
        ("bad.json", '["a",\n oops]', "bad.json, line 2: Expecting value"),
        ("bad.yaml", "- a\n- [b\n", "bad.yaml, line 3"),
        ("map.json", "{}", "a script is a list of steps, got dict"),
        ("script.txt", "[]", "a script ends in .yaml, .yml, .json"),
        ("key.json", '["a", {"txt": "b"}]', "key.json, step 2: an answer has no 'txt'"),
        ("when.json", '[{"text": "a", "when": {"regex": "("}}]', "step 1: '\\(' is not a regular expression"),
        ("repeat.json", '[{"text": "a", "repeat": 3}]', "step 1: 'repeat' is true or false"),
    ],
)
async def test_a_script_that_cannot_be_used_is_a_configuration_error_that_says_where(
    desk: Any, tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    one = desk({"script": name})

    with pytest.raises(ConfigurationError, match=words):
        await one.ask("Hello")

    assert one.names() == ["llm:request", "llm:response"]


async def test_yaml_without_pyyaml_is_a_configuration_error(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.yaml").write_text("- a\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(ConfigurationError, match=r"script\.yaml: PyYAML is not installed"):
        await desk({"script": "script.yaml"}).ask("Hello")
