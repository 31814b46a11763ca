"""What is published of a tool's call has no secret in it, and whoever goes on from a receipt has the whole result."""

import asyncio
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import warm_python
from agents_at_work import Agent, call

from amplifierd.home import Home

RESULT, INPUT, SAID = (f"ghp_{word}0123456789abcdefghijklmnopqrst" for word in ("result", "input", "said"))
SECRETS = (RESULT, INPUT, SAID)

CRASHING = """
import asyncio, os, signal, sys
import amplifierd

async def main():
    home = amplifierd.open_home(sys.argv[1], offline=True)
    async with home.sessions.resume(sys.argv[2]) as session:
        async for event in session.stream("Once more"):
            if event["event"] == "tool:outcome":
                os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def agent(folder: Path) -> Agent:
    """Return an agent whose model says what is in a file, so that nothing of it is a secret of its profile."""
    read, fails = call("read_file", file_path="secret.txt"), call("read_file", file_path=f"{INPUT}.txt")
    script = folder / "script.json"
    script.write_text(json.dumps([read, fails, f"It says {SAID}.", read, "Again."]))
    return Agent(tools=[{"module": "tool-filesystem"}], provider={"script": str(script)})


def leaked(published: Any) -> list[str]:
    text = published if isinstance(published, str) else json.dumps(published)
    return [secret for secret in SECRETS if secret in text]


async def test_no_event_shows_a_secret_of_a_call_its_result_its_error_or_the_answer(
    home: Home, work: Path, tmp_path: Path
) -> None:
    (work / "secret.txt").write_text(f"token {RESULT}\n")
    async with home.sessions.open(plan=agent(tmp_path).sections(), working_dir=work) as session:
        published = [event async for event in session.stream("Read") if not event["event"].endswith("delta")]

    assert leaked(published) == []
    first, second = [one["data"] for one in published if one["event"] == "tool:outcome"]
    assert "[REDACTED:SECRET]" in json.dumps(first["content"]), "the outcome is there, masked"
    assert (first["success"], second["success"]) == (True, False)
    assert leaked(home.sessions.events(session.session_id)) == []
    assert leaked((home.sessions.runtime.store.workspace(session.session_id) / "events.jsonl").read_text()) == []
    told_to_model = [one for one in home.sessions.messages(session.session_id) if one["role"] == "tool"]
    assert leaked(told_to_model) == [RESULT, INPUT], "the conversation goes on with the original"


async def test_a_repair_and_a_replay_have_the_whole_result_and_a_masked_export_does_not(
    home: Home, work: Path, tmp_path: Path
) -> None:
    (work / "secret.txt").write_text(f"token {RESULT}\n")
    async with home.sessions.open(plan=agent(tmp_path).sections(), working_dir=work) as session:
        await session.execute("Read")
    assert (await home.sessions.replay(session.session_id)).divergence is None
    program = [sys.executable, "-c", CRASHING, str(home.paths.home), session.session_id]
    crashed = await asyncio.to_thread(warm_python.run, program)
    assert crashed.returncode == -9

    report = await home.sessions.repair(session.session_id)
    answers = [one for one in home.sessions.messages(session.session_id) if one.get("metadata", {}).get("repaired")]
    assert [one["metadata"]["repaired"] for one in answers] == ["done"], report
    assert leaked(answers) == [RESULT]
    assert leaked(home.sessions.events(session.session_id)) == []
    masked, whole = tmp_path / "masked.zip", tmp_path / "whole.zip"
    await home.sessions.export(session.session_id, masked, mask_messages=True)
    await home.sessions.export(session.session_id, whole)
    assert leaked(_text_of(masked)) == []
    assert leaked(_text_of(whole)) == [RESULT, INPUT, SAID], "a person's own copy can be continued elsewhere"


def _text_of(archive: Path) -> str:
    with zipfile.ZipFile(archive) as exported:
        return "\n".join(exported.read(name).decode() for name in exported.namelist())
