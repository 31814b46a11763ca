"""From an installation to the first answer of a vendor's model: packages, the key, and which provider is meant."""

import json
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai_server import KEY, OpenAIServer
from shared_packages import link, needed_by
from terminal import Terminal

from amplifierd.paths import Paths
from amplifierd.server.run_file import find_running

Say = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture
def vendor(amplifier: Any) -> Iterator[OpenAIServer]:
    """A vendor whose address and key the environment of the command has."""
    with OpenAIServer() as server:
        amplifier.variables |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
        yield server


def test_the_plain_package_brings_what_the_providers_need() -> None:
    needed = {each.metadata["Name"].lower().replace("_", "-") for each in needed_by("amplifier")}

    assert {"anthropic", "openai", "mcp", "genai-prices"} <= needed
    assert "ddgs" not in needed


def test_init_tries_the_key_and_a_model_is_picked(amplifier: Any, vendor: OpenAIServer) -> None:
    vendor.models.append({"id": "gpt-5.5-mini", "object": "model", "created": 0, "owned_by": "openai"})
    terminal = Terminal(amplifier, "init", columns=140)
    terminal.expect(f"Asking openai at {vendor.base_url}, which OPENAI_BASE_URL names")
    terminal.expect("The key works; 2 models: gpt-5.5, gpt-5.5-mini")
    terminal.expect("Which model?")
    terminal.type("gpt-5.5-mini")
    terminal.expect("Saved in")
    assert terminal.end() == 0

    assert json.loads(amplifier("config", "get", "model", "--json").stdout)["value"] == "gpt-5.5-mini"
    tried = amplifier("provider", "test")
    assert (tried.returncode, "openai answered within" in tried.stdout) == (0, True), tried.stderr
    run = amplifier("run", "Hello")
    assert (run.returncode, run.stdout, run.stderr) == (0, "Hello\n", "")  # nothing is said of providers without a key
    assert vendor.sent()[-1]["model"] == "gpt-5.5-mini"


def test_a_key_that_the_vendor_refuses_is_told_and_not_kept(amplifier: Any, vendor: OpenAIServer) -> None:
    del amplifier.variables["OPENAI_API_KEY"]

    said = amplifier("init", "-p", "openai", stdin="sk-wrong-0123456789\n")

    assert said.returncode == 1
    assert "openai does not answer: Incorrect API key provided." in said.stderr
    assert "The key is removed again." in said.stdout
    assert not (amplifier.home / "config/settings.yaml").exists()


def test_a_provider_of_the_settings_is_a_preference_and_one_of_the_command_line_a_demand(
    amplifier: Any, vendor: OpenAIServer
) -> None:
    assert amplifier("init").returncode == 0

    rules = amplifier("run", "--profile", "offline", "Hello")
    asked = amplifier("run", "--profile", "offline", "-p", "openai", "Hello")

    assert (rules.returncode, rules.stderr) == (0, "")
    assert asked.returncode == 2
    assert "fix: this profile has others: -p mock" in asked.stderr


def test_a_chosen_provider_that_is_missing_is_told_in_words(amplifier: Any, vendor: OpenAIServer) -> None:
    (amplifier.home / "config").mkdir(parents=True)
    (amplifier.home / "config/settings.yaml").write_text("provider: anthropic\nprofile: foundation/base\n")

    run = amplifier("run", "Hello")

    assert "warning: provider-anthropic is missing: no API key; set ANTHROPIC_API_KEY" in run.stderr
    assert "did not install" not in run.stderr


def test_sessions_of_the_daemon_follow_the_settings_of_the_user(served: Path, amplifier: Any) -> None:
    settings = served / "config/settings.yaml"
    settings.write_text("profile: foundation/offline\neffort: high\nprovider: openai\n")
    try:
        created = _api(served, "POST", "/sessions", {"working_dir": str(amplifier.work)})
        assert created["profile_name"] == "foundation/offline"
        assert created["settings_overrides"] == {"session": {"orchestrator": {"config": {"reasoning_effort": "high"}}}}
    finally:
        settings.unlink()


def _api(home: Path, method: str, path: str, body: Any) -> Any:
    running = find_running(Paths.from_environment(home, {}))
    assert running is not None
    token = (home / "config/token").read_text().strip()
    answer = httpx2.request(
        method, f"{running.url}/api/v1{path}", json=body, headers={"Authorization": f"Bearer {token}"}, trust_env=False
    )
    return answer.raise_for_status().json()


@pytest.fixture(scope="module")
def without_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the product, and lacks the clients of the vendors."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    (site,) = (folder / "environment/lib").glob("python*/site-packages")
    for needed in needed_by("amplifier"):
        if needed.metadata["Name"].lower() not in {"openai", "anthropic"}:
            link(needed, site)
    root = Path(__file__).parents[2]
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    run = subprocess.run([sys.executable, "-c", build], cwd=root, capture_output=True, text=True, check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "environment/bin/python"), "install", "--quiet"]
    wheel = str(folder / run.stdout.split()[-1])
    subprocess.run([*pip, "--no-index", "--no-deps", wheel], capture_output=True, text=True, check=True)
    return folder


def test_packages_that_are_missing_are_named_with_what_installs_them(
    without_clients: Path, vendor: OpenAIServer
) -> None:
    folder, command = without_clients, str(without_clients / "environment/bin/amplifier")
    variables = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "NO_COLOR": "1"}
    variables |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": vendor.base_url}

    def say(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=120
        )

    for said in (say("init"), say("provider", "test", "openai")):
        assert said.returncode == 1
        assert "provider-openai needs packages that are not installed: openai>=" in said.stderr
        assert "fix: amplifier provider install openai, which is: " in said.stderr
    assert "✗ packages: provider-openai needs packages" in say("doctor").stdout
    assert "provider-openai needs packages that are not installed" in say("profile", "validate", "base").stdout

    (folder / "bin").mkdir(exist_ok=True)
    uv = folder / "bin/uv"  # what installs here; the index is this environment
    (site,) = (folder / "environment/lib").glob("python*/site-packages")
    stand_ins = str(Path(__file__).parents[1] / "stand_ins")
    code = f"import sys; sys.path[:0] = [{stand_ins!r}]; from pathlib import Path; "
    code += f"from shared_packages import *; site = Path({str(site)!r}); "
    code += "[link(distribution(each.split('>')[0]), site) for each in sys.argv[5:]]"
    uv.write_text(f'#!/bin/sh\necho "$@"\nexec {shlex.quote(sys.executable)} -c {json.dumps(code)} "$@"\n')
    uv.chmod(0o755)
    installed = say("provider", "install", "openai")
    assert (installed.returncode, "pip install --python" in installed.stdout) == (0, True), installed.stderr
    assert "openai answered within" in say("provider", "test", "openai").stdout
    shutil.rmtree(folder / ".amplifierd", ignore_errors=True)
