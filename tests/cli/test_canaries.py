"""Secrets planted everywhere, the command used as on any day, and then the whole home is searched.

Nothing may be found outside the key store but what tools returned, in transcripts and receipts for the owner alone,
and what an author wrote into a profile, in that very file.
"""

import json
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
import yaml
from file_keyring import Keyring as FileKeyring
from plans import call
from terminal import CTRL_D, Terminal

Say = Callable[..., Any]

ENVIRONMENT = "canary-environment-5e1f0c2a"
VARIABLE = "canary-variable-91b4d7a0"
KEYRING = "canary-keyring-77c0ffee"
KEY_FILE = "canary-key-file-1c2d3e4f"
SETTINGS = "canary-settings-6a7b8c9d"
AUTHOR = "canary-of-the-author-3d2c1b0a"
TOOL = "canary-of-a-tool-0badf00d"
VENDOR = "sk-ant-api03-c4n4ry0fth3v3nd0r0123456789abcdefABCDEF"
NEVER_SHOWN = (ENVIRONMENT, VARIABLE, KEYRING, KEY_FILE, SETTINGS, AUTHOR, VENDOR)


@pytest.fixture
def planted(amplifier: Any, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A home, a keyring, an environment, a project and a profile with secrets."""
    stand_ins = str(Path(__file__).parents[1] / "stand_ins")
    secrets = {"OPENAI_API_KEY": ENVIRONMENT, "CANARY_TOKEN": VARIABLE, "KEYRING_FILE": str(tmp_path / "keyring.json")}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    process = {"PYTHON_KEYRING_BACKEND": "file_keyring.Keyring", "PYTHONPATH": stand_ins}
    amplifier.variables.update({**secrets, **process})
    (amplifier.work / "secret.txt").write_text(f"the tool says {TOOL}\n")
    (amplifier.work / ".amplifier").mkdir()
    (amplifier.work / ".amplifier/settings.yaml").write_text(f"profile: mine\napi_key: {SETTINGS}\n")
    profile(amplifier.home, tmp_path)
    own = {"api_keys": {"provider-anthropic": KEY_FILE}}
    (amplifier.home / "config/secrets.yaml").write_text(yaml.safe_dump(own))
    (amplifier.home / "config/secrets.yaml").chmod(0o600)
    before = keyring.get_keyring()
    keyring.set_keyring(FileKeyring())
    yield amplifier
    keyring.set_keyring(before)


def profile(home: Path, folder: Path) -> None:
    """Write a profile whose model reads a secret, and is then refused by its vendor."""
    told = f"{KEYRING} is not a key, {VENDOR} is not, nor is {AUTHOR} or {ENVIRONMENT}"
    refused = {"when": {"contains": "Fail"}, "error": {"type": "AuthenticationError", "message": told}}
    answered = {"when": {"tool": "read_file"}, "text": "It says so."}
    script = folder / "script.json"
    script.write_text(json.dumps([refused, answered, call("read_file", file_path="secret.txt")]))
    loop = {"module": "loop-streaming", "config": {"default_provider": "mock"}}
    front = {
        "profile": {"name": "mine", "version": "1.0.0", "description": "Mine", "schema_version": 2},
        "session": {"orchestrator": loop, "context": {"module": "context-simple"}},
        "providers": [
            {"module": "provider-mock", "config": {"script": str(script), "raw": True}},
            {"module": "provider-openai"},  # has a use for the key in the keyring
        ],
        "tools": [
            {"module": "tool-filesystem", "config": {"password": "${CANARY_TOKEN}"}},
            {"module": "tool-bash", "config": {"credential": AUTHOR}},
        ],
        "hooks": [{"module": "hooks-logging"}],
    }
    file = home / "config/profiles/mine.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"---\n{yaml.safe_dump(front)}---\n\nYou read.\n")


def use(say: Say, amplifier: Any, tmp_path: Path) -> str:
    """Use the command as on any day, and return all that it said."""
    said = []

    def do(*arguments: str, stdin: str = "", code: int = 0) -> Any:
        told = say(*arguments, stdin=stdin)
        assert told.code == code, told.err
        said.append(told.out + told.err)
        return told

    assert "the system's keyring" in do("provider", "add", "openai", stdin=f"{KEYRING}\n").out
    do("config", "trust")
    assert "api_key is not a setting" in do("run", "Read it").err
    do("run", "--resume", "last", "Fail", code=1)
    do("--debug", "run", "--resume", "last", "Fail", code=1)
    terminal = Terminal(amplifier, "continue")
    terminal.expect(">")
    terminal.type("Read it")
    terminal.expect("tokens")
    terminal.type("/context")
    terminal.expect("in the last request")
    terminal.press(CTRL_D)
    assert terminal.end() == 0
    said.append(terminal.read)
    do("session", "export", "last", str(tmp_path / "exported.zip"))
    do("session", "import", str(tmp_path / "exported.zip"))
    do("session", "replay", "last")
    do("doctor", "--json")
    do("provider", "list", "--json")
    do("config", "list", "--json")
    do("plan", "show", "mine", "--json")
    do("plan", "explain", "tools[tool-bash].config.credential")
    return "".join(said)


def found_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the canaries in a file, and the events that they are in."""
    text = path.read_bytes().decode(errors="replace")
    for canary in (*NEVER_SHOWN, TOOL):
        lines = [line for line in text.splitlines() if canary in line]
        kinds = {json.loads(line).get("event", "") if path.suffix == ".jsonl" else "" for line in lines}
        yield from ((canary, kind) for kind in kinds)


def is_allowed(canary: str, event: str, path: Path) -> bool:
    if canary == TOOL:
        is_log = path.name == "log.jsonl" and event in ("tool:post", "llm:request")  # of hooks-logging, as asked for
        return path.name == "transcript.jsonl" or event in ("tool:outcome", "tool:intent") or is_log
    if canary == AUTHOR:
        return path.name == "mine.md"
    return canary == KEY_FILE and path.name == "secrets.yaml"


def test_nothing_secret_is_written_or_said_outside_the_key_store(planted: Any, say: Say, tmp_path: Path) -> None:
    said = use(say, planted, tmp_path)

    assert [canary for canary in NEVER_SHOWN if canary in said] == []
    leaks, kept = set[str](), set[str]()
    for path in sorted(one for one in planted.home.rglob("*") if one.is_file() and not one.is_symlink()):
        place = re.sub(r"(session_)?[0-9a-f-]{16,}", "…", str(path.relative_to(planted.home)))
        for canary, event in found_in(path):
            kept.add(canary)
            if not is_allowed(canary, event, path):
                leaks.add(f"{canary} in {place} {event}")
            elif canary != AUTHOR and stat.S_IMODE(path.stat().st_mode) & 0o077:
                leaks.add(f"{canary} in {place}, which others can read")
    assert not leaks, "\n".join(sorted(leaks))
    assert kept == {TOOL, KEY_FILE, AUTHOR}, "what must be there is there: the search works"
    with zipfile.ZipFile(tmp_path / "exported.zip") as exported:
        text = "\n".join(exported.read(name).decode() for name in exported.namelist())
    assert [canary for canary in NEVER_SHOWN if canary in text] == []
