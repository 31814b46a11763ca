"""Settings of the command: which layer counts, and what happens to what people write."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amplifier_cli
from amplifier_cli.config import AppConfig, resolve_app_config

Say = Callable[..., Any]


def origin(say: Say, key: str) -> tuple[Any, str]:
    found = json.loads(say("config", "get", key, "--json").out)
    return found["value"], found["from"]


def test_each_layer_outranks_the_next(say: Say, amplifier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin(say, "model") == (None, "default")
    say("config", "set", "model", "of-the-user")
    assert origin(say, "model") == ("of-the-user", "user")
    say("config", "trust")
    say("config", "set", "--project", "model", "of-the-project")
    assert origin(say, "model") == ("of-the-project", "project")
    say("config", "set", "--local", "model", "mine-here")
    assert origin(say, "model") == ("mine-here", "local")
    monkeypatch.setenv("AMPLIFIER_MODEL", "of-the-shell")
    assert origin(say, "model") == ("of-the-shell", "environment")

    found = resolve_app_config({"model": "of-the-flag"}, home=amplifier.home, working_dir=amplifier.work)

    setting = found.setting("model")
    assert (found.values.model, setting.layer) == ("of-the-flag", "flag")
    assert setting.overrode == ("environment", "local", "project", "user")


def test_a_project_has_no_say_before_it_is_trusted(say: Say) -> None:
    told = say("config", "set", "--project", "profile", "evil/profile")

    assert told.code == 0
    assert origin(say, "profile") == (None, "default")
    assert "amplifier config trust" in say("config", "list").err


def test_the_home_directory_is_no_project(say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".amplifier").mkdir()
    (tmp_path / ".amplifier/settings.yaml").write_text("model: of-another-application\n")

    assert origin(say, "model") == (None, "default")
    assert say("config", "list").err == ""


def test_comments_survive_a_change(say: Say) -> None:
    file = Path(say("config", "path").out.strip())
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nmodel: a  # because\n")

    say("config", "set", "effort", "high")
    say("config", "set", "model", "b")

    assert file.read_text() == "# mine\nmodel: b  # because\neffort: high\n"
    say("config", "set", "effort", "--unset")
    assert "effort" not in file.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_iterations: many\n", ["settings.yaml: max_iterations", "'many'"]),
        ("model: [unclosed\n", ["settings.yaml is not YAML"]),
        ("just words\n", ["a mapping of settings is expected"]),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key(say: Say, text: str, words: list[str]) -> None:
    file = Path(say("config", "path").out.strip())
    file.parent.mkdir(parents=True)
    file.write_text(text)

    said = say("config", "list")

    assert said.code == 2
    assert [word for word in [*words, "fix: "] if word not in said.err] == []


def test_a_key_that_means_nothing_is_reported_with_what_was_meant(say: Say) -> None:
    file = Path(say("config", "path").out.strip())
    file.parent.mkdir(parents=True)
    file.write_text("modle: a\n")

    assert "modle is not a setting and has no effect; did you mean model?" in say("config", "list").err


def test_a_value_is_checked_before_it_is_written(say: Say) -> None:
    said = say("config", "set", "max_cost", "-1")

    assert said.code == 2
    assert not Path(say("config", "path").out.strip()).exists()


def test_every_key_is_read_by_something() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(amplifier_cli.__file__).parent.rglob("*.py")]
    read = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("values")
    }

    assert AppConfig.model_fields.keys() - read == {"bundle"}  # `source` reads it by name
