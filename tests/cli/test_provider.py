"""`amplifier provider`: keys that nobody sees, and whether a provider answers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from file_keyring import Keyring as FileKeyring
from terminal import Terminal

Say = Callable[..., Any]
CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch, amplifier: Any) -> None:
    """Keys go to the file, whatever keyring the machine has."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    amplifier.variables["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"


def providers(say: Say) -> dict[str, Any]:
    return {each["provider"]: each for each in json.loads(say("provider", "list", "--json").out)}


def test_a_key_from_a_pipe_is_stored_for_its_owner_alone_and_never_shown(say: Say, amplifier: Any) -> None:
    before = providers(say)["anthropic"]
    added = say("provider", "add", "anthropic", stdin=f"{CANARY}\n")
    after = providers(say)["anthropic"]

    secrets = amplifier.home / "config/secrets.yaml"
    assert (before["key"], before["variable"]) == (None, "ANTHROPIC_API_KEY")
    assert (after["from"], secrets.stat().st_mode & 0o777) == ("file", 0o600)
    assert CANARY not in added.out + added.err + json.dumps(after)
    holders = [
        path.name for path in amplifier.home.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert holders == ["secrets.yaml"]

    assert "removed" in say("provider", "add", "anthropic", "--remove").out
    assert providers(say)["anthropic"]["key"] is None


@pytest.fixture
def system_keyring(amplifier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A keyring of the system that works, here and in processes; returns the file that stands for it."""
    file = tmp_path / "keyring.json"
    monkeypatch.setenv("KEYRING_FILE", str(file))
    stand_ins = str(Path(__file__).parents[1] / "stand_ins")
    own = {"PYTHON_KEYRING_BACKEND": "file_keyring.Keyring", "PYTHONPATH": stand_ins, "KEYRING_FILE": str(file)}
    amplifier.variables.update(own)
    before = keyring.get_keyring()
    keyring.set_keyring(FileKeyring())
    yield file
    keyring.set_keyring(before)


def test_a_key_goes_to_the_keyring_of_the_system_where_there_is_one(
    say: Say, amplifier: Any, system_keyring: Path
) -> None:
    added = say("provider", "add", "openai", stdin=f"{CANARY}\n")
    listed = json.loads(amplifier("provider", "list", "--json").stdout)

    assert "the key is stored in the system's keyring" in added.out
    assert json.loads(system_keyring.read_text()) == {"amplifier/provider-openai": CANARY}
    assert [each["from"] for each in listed if each["provider"] == "openai"] == ["keyring"]
    assert [path for path in amplifier.home.rglob("*") if path.is_file() and CANARY in path.read_text()] == []
    assert CANARY not in json.dumps(listed)
    assert providers(say)["openai"]["from"] == "keyring"
    assert "removed" in say("provider", "add", "openai", "--remove").out
    assert json.loads(system_keyring.read_text()) == {}


def test_a_keyring_that_fails_is_no_reason_not_to_store_a_key(say: Say, amplifier: Any, system_keyring: Path) -> None:
    system_keyring.mkdir()  # so that it can be neither read nor written

    added = say("provider", "add", "openai", stdin=f"{CANARY}\n")

    assert (added.code, "secrets.yaml" in added.out) == (0, True)
    assert providers(say)["openai"]["from"] == "file"


def test_a_typed_key_is_not_echoed(amplifier: Any) -> None:
    terminal = Terminal(amplifier, "provider", "add", "openai")
    terminal.expect("Key for openai:")
    terminal.type(CANARY)
    terminal.expect("the key is stored in")

    assert terminal.end() == 0
    assert CANARY not in terminal.read


def test_an_empty_key_and_an_unknown_provider_are_refused(say: Say) -> None:
    assert "the key is empty" in say("provider", "add", "openai", stdin="\n").err
    assert "did you mean anthropic?" in say("provider", "add", "antropic", stdin="x\n").err


def test_a_provider_is_tried_and_names_its_models(say: Say) -> None:
    tried = json.loads(say("provider", "test", "mock", "--json").out)

    assert tried["answer"]
    assert [model["id"] for model in json.loads(say("provider", "models", "mock", "--json").out)] == ["mock-model"]


def test_a_provider_without_a_key_says_how_to_add_one(say: Say) -> None:
    said = say("provider", "test", "anthropic")

    assert said.code == 1
    assert "amplifier provider add anthropic" in said.err
    assert "Traceback" not in said.err
