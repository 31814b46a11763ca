"""Which variables of the environment reach a worker."""

from pathlib import Path

import pytest
from agents_at_work import call
from worker_bench import FAULTS, PROMPT, WorkerBench

from amplifierd import open_home
from amplifierd.workers.worker_start import secrets_for, worker_environment


def test_a_worker_starts_without_secrets_and_without_what_is_the_daemon_s() -> None:
    given = {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": "sk-1",
        "GITHUB_TOKEN": "gh",
        "AMPLIFIERD_PORT": "1",
        "AWS_REGION": "eu",
        "PIP_INDEX_URL": "u",
    }
    assert worker_environment(given) == {"PATH": "/bin", "LANG": "C.UTF-8", "PIP_INDEX_URL": "u"}


def test_a_session_gets_the_secrets_that_its_plan_names_and_the_keys_of_its_modules(tmp_path: Path) -> None:
    plan = {
        "providers": [{"module": "provider-anthropic"}],
        "tools": [{"module": "tool-x", "config": {"token": "${GITHUB_TOKEN:-none}", "place": "${HOME}"}}],
        "agents": {"helper": {"providers": [{"module": "provider-acme"}]}},
    }
    names = ("ANTHROPIC_API_KEY", "ACME_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "OTHER_TOKEN", "HOME")

    given = secrets_for(plan, dict.fromkeys(names, "v"), open_home(tmp_path / "home").resolver())

    assert set(given) == {"ANTHROPIC_API_KEY", "ACME_API_KEY", "GITHUB_TOKEN"}


async def test_a_secret_reaches_the_sessions_whose_plan_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_TOKEN", "a-very-secret-word")
    monkeypatch.setenv("FOREIGN_TOKEN", "another-secret-word")
    script = [{**call("fault", fault="environment"), "when": {"contains": PROMPT}}, "Done."]
    async with WorkerBench(tmp_path) as bench:
        session_id, folder = await bench.session(script, tools=[{**FAULTS, "config": {"token": "${BENCH_TOKEN}"}}])
        await bench.run(session_id, f"{PROMPT} with a-very-secret-word")

    seen = (folder / "environment").read_text()
    assert "BENCH_TOKEN" in seen
    assert "FOREIGN_TOKEN" not in seen
    stored = bench.home.paths.sessions / session_id
    assert "a-very-secret-word" not in (stored / "events.jsonl").read_text()
