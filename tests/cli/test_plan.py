"""`amplifier plan`: plans shown, explained, compared, checked and converted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Say = Callable[..., Any]


def plan_of(say: Say, *arguments: str) -> dict[str, Any]:
    said = say("plan", "show", *arguments, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def own_profile(say: Say, name: str, text: str) -> None:
    folder = Path(say("config", "path").out.strip()).parent / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    head = f"profile: {{name: {name}, version: 1.0.0, extends: foundation/offline, schema_version: 2}}"
    (folder / f"{name}.md").write_text(f"---\n{head}\n{text}---\n")


def test_a_plan_is_shown_in_both_forms_and_what_is_shown_can_be_run(say: Say, amplifier: Any) -> None:
    portable = plan_of(say, "offline")
    resolved = plan_of(say, "foundation/offline", "--form", "resolved")
    text = say("plan", "show", "offline").out
    file = amplifier.work / "shown.yaml"
    file.write_text(text)

    assert portable["session"]["orchestrator"]["source"] == "foundation/offline"
    assert resolved["session"]["orchestrator"] == "loop-streaming"
    assert yaml.safe_load(text) == portable
    assert plan_of(say) == portable
    assert say("run", "--plan", str(file), "List files").code == 0


def test_a_key_is_left_out_and_a_variable_stays(say: Say) -> None:
    own_profile(say, "mine", "providers:\n  - {module: provider-mock, config: {api_key: 'k-12345', token: '${T}'}}\n")

    config = plan_of(say, "mine")["providers"][0]["config"]
    explained = say("plan", "explain", "providers[provider-mock].config.api_key", "--profile", "mine")

    assert ("api_key" in config, config["token"]) == (False, "${T}")
    assert (explained.code, "k-12345" in explained.out, "local/mine" in explained.out) == (0, False, True)


def test_a_value_is_explained_by_its_file_and_what_it_overrode(say: Say) -> None:
    own_profile(say, "mine", "session: {orchestrator: {config: {max_iterations: 7}}}\n")
    key = "session.orchestrator.config.max_iterations"

    found = json.loads(say("plan", "explain", key, "--profile", "mine", "--json").out)
    text = say("plan", "explain", key, "--profile", "mine").out

    assert (found["value"], found["origin"]["profile"]) == (7, "local/mine")
    assert [old["value"] for old in found["overrode"]][-1] == 100
    assert text.splitlines()[0] == "7"
    assert "mine" in text
    assert "instead of 100" in text


def test_two_plans_are_compared(say: Say, amplifier: Any) -> None:
    plan = plan_of(say, "offline")
    plan["session"]["orchestrator"]["config"]["max_iterations"] = 3
    (amplifier.work / "other.json").write_text(json.dumps(plan))

    text = say("plan", "diff", "offline", "other.json").out
    found = json.loads(say("plan", "diff", "offline", "base", "--json").out)

    assert "config.max_iterations 100 → 3" in text
    assert {"section": "providers", "module": "provider-mock"} in found["removed"]
    assert say("plan", "diff", "offline", "offline", "--exit-code").out == "no changes\n"
    assert say("plan", "diff", "offline", "other.json", "--exit-code").code == 1


def test_a_plan_is_checked_and_converted_there_and_back(say: Say, amplifier: Any) -> None:
    plan = plan_of(say, "offline")
    (amplifier.work / "plan.json").write_text(json.dumps(plan))
    assert say("plan", "validate", "plan.json").code == 0

    (amplifier.work / "resolved.yaml").write_text(say("plan", "convert", "plan.json", "--form", "resolved").out)
    back = say("plan", "convert", "resolved.yaml", "--form", "portable", "--json")

    assert json.loads(back.out) == plan
    (amplifier.work / "broken.yaml").write_text("session: {orchestrator: loop-basic}\ntools: {}\n")
    broken = say("plan", "validate", "broken.yaml")
    assert broken.code == 1
    assert "session.context" in broken.out
    assert json.loads(say("plan", "validate", "broken.yaml", "--json").out)["passed"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "ofline"], ["there is no profile 'ofline'", "did you mean offline?"]),
        (["show", "nothing.json"], ["nothing.json cannot be read"]),
        (["show", "offline", "--bundle", "x"], ["use one of them"]),
        (["show", "offline", "--form", "short"], ["portable"]),
        (["explain", "session.orchestrator.modul"], ["did you mean session.orchestrator.module"]),
        (["convert", "plan.json"], ["--form"]),
        (["validate"], ["FILE"]),
    ],
)
def test_what_cannot_be_shown_is_told(say: Say, arguments: list[str], words: list[str]) -> None:
    said = say("plan", *arguments)

    assert said.code == 2
    assert [word for word in words if word not in said.err] == []
