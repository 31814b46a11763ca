"""`amplifier init` and `amplifier doctor`: from a fresh machine to an agent that works, and back to health."""

import http.server
import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plans import call, plan_file
from terminal import CTRL_C, Terminal

Say = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no model on this machine, whatever runs beside the tests."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")


@pytest.fixture
def model_server() -> Iterator[str]:
    """A server on loopback that names one model."""

    class Models(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"object": "list", "data": [{"id": "small-model", "object": "model"}]}')

        def log_message(self, *arguments: Any) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Models)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def setting(say: Say, key: str) -> Any:
    return json.loads(say("config", "get", key, "--json").out)["value"]


def findings(say: Say, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(say("doctor", "--json", *arguments).out):
        found.setdefault(each["check"], []).append(each)
    return found


@pytest.mark.usefixtures("no_server")
def test_without_a_key_an_agent_works_by_rules(say: Say) -> None:
    said = say("init")

    assert said.code == 0
    assert "amplifier run" in said.out
    assert setting(say, "profile") == "foundation/offline"


def test_what_init_suggests_works_without_a_model(say: Say, amplifier: Any) -> None:
    (amplifier.work / "notes.md").write_text("milk\n")
    suggested = next(line for line in say("init", "--offline").out.splitlines() if "amplifier run" in line)

    answer = say(*shlex.split(suggested)[1:])

    assert (answer.code, "notes.md" in answer.out) == (0, True)


def test_a_key_in_the_environment_is_found_and_stays_there(
    say: Say, amplifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-0123456789")

    said = say("init")

    assert "The key for anthropic comes from ANTHROPIC_API_KEY" in said.out
    assert (setting(say, "profile"), setting(say, "provider")) == ("foundation/base", "anthropic")
    assert [p for p in amplifier.home.rglob("*") if p.is_file() and b"sk-canary" in p.read_bytes()] == []


def test_a_key_from_a_pipe_is_stored(say: Say, amplifier: Any) -> None:
    said = say("init", "-p", "openai", stdin="sk-canary-0123456789\n")

    assert said.code == 0, said.err
    assert setting(say, "provider") == "openai"
    assert "sk-canary" in (amplifier.home / "config/secrets.yaml").read_text()
    assert "did you mean openai?" in say("init", "-p", "opnai").err


def test_a_model_on_this_machine_gets_a_profile(say: Say, model_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server)

    assert "small-model" in say("init").out
    assert setting(say, "profile") == "local/local-server"
    assert say("profile", "compile", "local-server").code == 0


def test_a_profile_for_a_model_on_this_machine_stays_as_its_user_changed_it(
    say: Say, amplifier: Any, model_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server)
    assert "stays as it is" not in say("init").out + say("init").out
    file = amplifier.home / "config/profiles/local-server.md"
    file.write_text(f"{file.read_text()}Mine.\n")

    assert "stays as it is" in say("init").out
    assert file.read_text().endswith("Mine.\n")


def test_a_healthy_home_has_no_errors(say: Say) -> None:
    said = say("doctor")

    assert said.code == 0
    assert [word for word in ("python", "git", "home", "space", "session") if f"✓ {word}" not in said.out] == []
    assert "amplifier init" in said.out


def test_others_with_our_commands_and_packages_are_named(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file, text in (
        ("other_cli", "entry_points.txt", "[console_scripts]\namplifier = other_cli:main\n"),
        ("amplifierd", "RECORD", "amplifierd/app.py,,\namplifierd-0.3.dist-info/METADATA,,\n"),
    ):
        info = tmp_path / f"installed/{name}-0.3.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
        (info / file).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))

    found = findings(say)

    assert [each["message"] for each in found["commands"]] == [
        "other_cli 0.3 has a command amplifier too, and the one that was installed last is started"
    ]
    assert [each["message"] for each in found["packages"]] == [
        "amplifierd 0.3 installs files into amplifierd, which are ours"
    ]
    assert "installation" not in found


def test_a_stale_lock_is_found_and_fixed(say: Say, amplifier: Any) -> None:
    say("profile", "new", "helper", "--extends", "offline")
    say("profile", "compile", "helper")
    file = amplifier.home / "config/profiles/helper.md"
    file.write_text(file.read_text().replace("An agent of my own", "Another one"))

    stale = [each for each in findings(say)["profile"] if each["grade"] == "warning"]
    assert (len(stale), stale[0]["fix"]) == (1, "amplifier profile compile local/helper")
    assert "fixed" in say("doctor", "--fix").out
    assert [each["grade"] for each in findings(say)["profile"]] == ["ok"]


def test_a_damaged_session_and_a_broken_profile_are_found(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("read_file", file_path="notes.md"), "Milk."])
    found = json.loads(say("run", "--plan", plan, "-o", "json", "Hi").out)
    (amplifier.home / "state/sessions" / found["session_id"] / "metadata.json").write_text("{")
    (amplifier.home / "config/profiles").mkdir(parents=True)
    (amplifier.home / "config/profiles/mine.md").write_text("---\nprofile: {name: mine\n---\n")

    said = say("doctor")

    assert said.code == 1
    assert f"✗ session: {found['session_id']}" in said.out
    assert "✗ profile:" in said.out


def test_a_session_whose_holder_is_gone_is_found_and_repaired(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello."])
    session_id = json.loads(say("run", "--plan", plan, "-o", "json", "Hi").out)["session_id"]
    gone = {"pid": 2**22 - 1, "started": 1.0, "host": os.uname().nodename, "kind": "library"}
    boot = json.dumps({"boot_id": _boot_id()})
    held = {"holder": {**gone, **json.loads(boot)}, "epoch": 99, "since": "2026-01-01T00:00:00Z"}
    (amplifier.home / "state/sessions" / session_id / "hold.json").write_text(json.dumps({"format_version": 1, **held}))

    grades = [each["grade"] for each in findings(say)["session"]]
    assert grades == ["warning", "ok"]
    assert say("doctor", "--fix").code == 0


def _boot_id() -> str:
    from amplifierd.store.hold import boot_id

    return boot_id()


def test_a_git_that_does_not_work_is_found(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin/git"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}{os.pathsep}{os.environ['PATH']}")

    found = findings(say)["git"][0]

    assert (found["grade"], "git does not work" in found["message"]) == ("error", True)


@pytest.mark.parametrize(
    ("settings", "check", "says"),
    [("profile: foundation/nope\n", "agent", "there is no profile"), ("max_cost: lots\n", "settings", "max_cost")],
)
def test_the_doctor_looks_at_the_settings_of_the_command(
    say: Say, amplifier: Any, settings: str, check: str, says: str
) -> None:
    file = amplifier.home / "config" / "settings.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(settings)

    (found,) = findings(say)[check]

    assert (found["grade"], says in found["message"]) == ("error", True)


@pytest.mark.usefixtures("no_server")
def test_ctrl_c_ends_a_question(amplifier: Any) -> None:
    terminal = Terminal(amplifier, "init")
    terminal.expect("Which provider")

    terminal.press(CTRL_C)

    assert terminal.end() == 130
    assert not (amplifier.home / "config" / "settings.yaml").exists()
