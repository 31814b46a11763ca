"""`amplifier module`: modules listed, shown, checked and written."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plain_pytest
import pytest

Say = Callable[..., Any]

TYPES = {
    "tool": "tool-word-count",
    "hook": "hooks-word-count",
    "provider": "provider-word-count",
    "orchestrator": "loop-word-count",
    "context": "context-word-count",
}


@pytest.mark.parametrize("module_type", TYPES)
def test_a_new_module_passes_the_validator_and_its_own_tests(
    say: Say, amplifier: Any, module_type: str, tmp_path: Path
) -> None:
    made = say("module", "new", "word-count", "--type", module_type, "--json")

    assert json.loads(made.out)["module_id"] == TYPES[module_type]
    checked = json.loads(say("module", "validate", "./word-count", "--json").out)
    assert (checked["passed"], checked["module_type"]) == (True, module_type)
    assert [check for check in checked["checks"] if not check["passed"]] == []
    command = [sys.executable, "-m", "pytest", "-q", *plain_pytest.options(tmp_path / "temporary"), "word-count"]
    tested = subprocess.run(
        command, cwd=amplifier.work, env=amplifier.environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert tested.returncode == 0, tested.stdout


def test_a_new_tool_works_in_a_profile_that_names_its_folder(say: Say, amplifier: Any) -> None:
    say("module", "new", "my-tool", "--type", "tool")
    readme = (amplifier.work / "my-tool/README.md").read_text()
    usage = readme.partition("```yaml\n")[2].partition("```")[0]
    profile = Path(say("config", "path").out.strip()).parent / "profiles/mine.md"
    profile.parent.mkdir(parents=True)
    head = "profile: {name: mine, version: 1.0.0, extends: foundation/offline, schema_version: 2}\n"
    profile.write_text(f"---\n{head}{usage}  config: {{greeting: 'Hello, '}}\n---\n")

    called = say("tool", "invoke", "my", "text=world", "--profile", "mine")

    assert (called.code, called.out) == (0, "Hello, world\n"), called.err
    listed = json.loads(say("module", "list", "--profile", "mine", "--type", "tool", "--json").out)
    assert listed[-1]["module_id"] == "tool-my"
    assert listed[-1]["source"].endswith("my-tool")


def test_a_source_that_an_installed_module_takes_the_place_of_is_named(
    say: Say, amplifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, elsewhere = Path(say("config", "path").out.strip()).parent, str(amplifier.work / "elsewhere")
    monkeypatch.setenv("AMPLIFIERD_SOURCES__REPLACE", '{"tool-todo": "installed"}')
    tools = f"tools: [{{module: tool-todo, source: {elsewhere}}}]"
    (config / "profiles").mkdir(parents=True)
    head = "profile: {name: mine, version: 1.0.0, extends: foundation/offline, schema_version: 2}"
    (config / "profiles/mine.md").write_text(f"---\n{head}\n{tools}\n---\n")
    bundle = amplifier.work / "own.md"
    bundle.write_text(f"---\nbundle: {{name: own}}\n{tools}\n---\n")

    for choice in (("--profile", "mine"), ("--bundle", str(bundle))):
        listed = json.loads(say("module", "list", *choice, "--type", "tool", "--json").out)
        told = {each["module_id"]: (each["source"], each["instead_of"]) for each in listed}
        assert told["tool-todo"] == ("installed", elsewhere)
        assert f"installed, not {elsewhere}" in say("module", "list", *choice).out
    explained = say("plan", "explain", "tools[tool-todo].source", "--profile", "mine").out
    assert "from sources.replace" in explained
    assert f"instead of '{elsewhere}'" in explained
    assert elsewhere not in say("plan", "show", "--bundle", str(bundle)).out


def test_installed_modules_are_listed_and_shown(say: Say) -> None:
    listed = {each["module_id"]: each for each in json.loads(say("module", "list", "--json").out)}

    assert listed["tool-bash"]["module_type"] == "tool"
    assert "tool-bash" in say("module", "list", "--type", "tool").out
    assert "tool-bash" not in say("module", "list", "--type", "hook").out
    assert listed["loop-basic"]["summary"] in say("module", "show", "loop-basic").out
    assert json.loads(say("module", "show", "bash", "--json").out)["module_id"] == "tool-bash"


def test_a_broken_module_is_told_apart_from_none(say: Say, amplifier: Any) -> None:
    package = amplifier.work / "tool-broken/amplifier_module_tool_broken"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('hello')\nraise ImportError('no luck')\n")

    said = say("module", "validate", "./tool-broken")

    assert (said.code, "no luck" in said.out, "hello" in said.out) == (1, True, False)
    assert say("module", "show", "./tool-broken").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new", "thing"], ["--type", "orchestrator"]),
        (["new", "tool-x", "--type", "hook"], ["is the name of a tool"]),
        (["new", "../evil", "--type", "tool"], ["cannot be called '../evil'"]),
        (["new", "X Y", "--type", "tool"], ["lower-case letters"]),
        (["new", "taken", "--type", "tool"], ["exists already"]),
        (["validate", "./nothing"], ["./nothing does not exist"]),
        (["show", "tool-bahs"], ["did you mean tool-bash"]),
        (["show", "./taken"], ["does not contain a module"]),
        (["validate", "./taken", "--type", "thing"], ["orchestrator"]),
    ],
)
def test_what_cannot_be_done_is_told(say: Say, amplifier: Any, arguments: list[str], words: list[str]) -> None:
    (amplifier.work / "taken").mkdir()
    (amplifier.work / "taken/file").touch()

    said = say("module", *arguments)

    assert said.code == 2
    assert [word for word in words if word not in said.err] == []
