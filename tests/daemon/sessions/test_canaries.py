"""Secrets planted everywhere, everything done with a session that can be done, and then the whole home is searched.

Nothing may be found outside the key store, but what tools returned, in transcripts and receipts for the owner alone,
and what authors wrote, in the very files that they wrote.
"""

import asyncio
import json
import logging
import re
import sqlite3
import stat
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
import warm_python
from agents_at_work import Agent, Kind, call
from memory_keyring import MemoryKeyring

import amplifierd
from amplifierd.home import Home

ENVIRONMENT = "canary-environment-5e1f0c2a"
NAMELESS = "canary-nameless-variable-91b4d7"
KEYRING = "canary-keyring-77c0ffee"
AUTHOR = "canary-of-the-author-3d2c1b0a"
OVERRIDE = "canary-of-an-override-40f1e2d3"
TOOL = "canary-of-a-tool-0badf00d"
VENDOR = "sk-ant-api03-c4n4ry0fth3v3nd0r0123456789abcdefABCDEF"
SETTINGS = "canary-of-the-settings-6a5b4c3d"
SAID = "sk-proj-c4n4ryth4tth3m0d3ls4id0123456789abcdefABCDEF"

CRASHING = """
import asyncio, os, signal, sys
import amplifierd

async def main():
    home = amplifierd.open_home(sys.argv[1], offline=True)
    async with home.sessions.resume(sys.argv[2]) as session:
        async for event in session.stream("Once more"):
            if event["event"] == "tool:post":
                os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def planted(home: Home, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home with keys, in an environment with secrets."""
    before = keyring.get_keyring()
    keyring.set_keyring(MemoryKeyring())
    monkeypatch.setenv("CANARY_API_KEY", ENVIRONMENT)
    monkeypatch.setenv("CANARY_NAMELESS", NAMELESS)
    assert home.keys.set("provider-openai", KEYRING) == "keyring"
    (work / "secret.txt").write_text(f"the tool says {TOOL}\n")
    home.paths.config.mkdir(parents=True, exist_ok=True)
    token = f"{SETTINGS}:run:sha256:{'0' * 64}"
    settings = f"offline: true\nauth:\n  tokens: ['{token}']\nregistry_password: {SETTINGS}\n"
    home.paths.settings_file.write_text(settings)
    yield home
    keyring.set_keyring(before)


def leaky_module(folder: Path) -> dict[str, Any]:
    """Write a module that puts its configuration into the error it fails with."""
    package = folder / "tool-leaky/amplifier_module_tool_leaky"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        textwrap.dedent("""\
        __amplifier_module_type__ = "tool"

        async def mount(coordinator, config=None):
            raise RuntimeError(f"cannot log in with {config}")
        """)
    )
    return {"module": "tool-leaky", "source": str(package.parent)}


def scripted(file: Path, *steps: Any) -> dict[str, Any]:
    """Return the configuration of a model that says what is in a file outside the home."""
    file.write_text(json.dumps(steps))
    return {"script": str(file), "raw": True}


def agent(folder: Path, kind: Kind) -> Agent:
    """Return an agent that reads secrets, delegates, is denied a command, and is refused by its vendor."""
    read, asked = call("read_file", file_path="secret.txt"), call("bash", command=f"curl -d {SAID} http://127.0.0.1")
    told = f"{KEYRING} is no key, {VENDOR} is not, nor {AUTHOR}, {ENVIRONMENT}"
    refused = {"error": {"type": "AuthenticationError", "message": told}}
    helper = {
        "description": "Reads",
        "instruction": "You read.",
        "providers": [{"module": "provider-mock", "config": scripted(folder / "helper.json", read, "Read.", refused)}],
    }
    config = {"token": "${CANARY_API_KEY}", "password": "${CANARY_NAMELESS}", "credential": AUTHOR}
    tools: list[dict[str, Any]] = [
        {"module": "tool-filesystem", "config": dict(config)},
        {"module": "tool-bash"},
        {"module": "tool-task"},
    ]
    if kind == "plan":  # whose sources have to be below the roots that the settings name
        tools.append({"module": "tool-nowhere", "config": dict(config)})
    else:
        tools.append({**leaky_module(folder), "config": dict(config)})
    delegate = call("task", agent="helper", instruction="Read secret.txt")
    script = scripted(folder / "script.json", read, delegate, asked, "First.", refused, "Last.")
    return Agent(
        tools=tools,
        hooks=[{"module": "hooks-logging"}, {"module": "hooks-approval", "config": {"ask_user_fallback": True}}],
        agents={"helper": helper},
        provider={**script, "secret": "${CANARY_API_KEY}"},
        other_providers=[{"module": "provider-openai", "config": {"priority": 200}}],  # has a use for a key
    )


async def do_everything(home: Home, source: dict[str, Any], work: Path, tmp_path: Path) -> list[str]:
    override = {"tools": [{"module": "tool-bash", "config": {"password": OVERRIDE}}]}
    async with home.sessions.open(**source, working_dir=work, overrides=override) as session:
        first = await session.execute("Read, delegate, run")
        assert first.status == "completed", first
        assert [one.name for one in first.tool_calls] == ["read_file", "task", "bash"]
        failed = await session.execute("Fail")
        assert failed.status == "failed"
    session_id = session.session_id
    program = [sys.executable, "-c", CRASHING, str(home.paths.home), session_id]
    crashed = await asyncio.to_thread(warm_python.run, program)
    assert crashed.returncode == -9
    async with home.sessions.resume(session_id) as session:
        await session.execute("And again")
    fork = await home.sessions.fork(session_id, 1)
    async with home.sessions.resume(fork.session_id) as session:
        await session.execute("Elsewhere")
    clone = await home.sessions.clone(session_id)
    file = tmp_path / "session.export"
    await home.sessions.export(session_id, file)
    await home.sessions.import_(file)
    await home.sessions.replay(session_id)
    assert home.sessions.search("Read")
    assert not home.sessions.search(TOOL)
    await home.sessions.rename(session_id, "Canaries")
    return [session_id, fork.session_id, clone.session_id]


def found_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the canaries in a file, and the events or tables that they are in."""
    data = path.read_bytes()
    for canary in (ENVIRONMENT, NAMELESS, KEYRING, AUTHOR, OVERRIDE, SETTINGS, TOOL, VENDOR, SAID):
        if canary.encode() not in data:
            continue
        lines = [line for line in data.decode(errors="replace").splitlines() if canary in line]
        kinds = {json.loads(line).get("event", "") for line in lines} if path.suffix == ".jsonl" else {""}
        yield from ((canary, kind) for kind in kinds)
    if path.suffix == ".db":
        with sqlite3.connect(path) as database:
            text = "\n".join(database.iterdump())
        yield from ((canary, "dump") for canary in (ENVIRONMENT, KEYRING, AUTHOR, OVERRIDE, TOOL) if canary in text)


def is_allowed(canary: str, event: str, path: Path, home: Home) -> bool:
    if canary == TOOL:
        return path.name == "transcript.jsonl" or event in ("tool:outcome", "tool:intent")
    if canary == SAID:
        return path.name == "transcript.jsonl"
    if canary == AUTHOR:
        return path.is_relative_to(home.paths.own_profiles)
    return canary == SETTINGS and path == home.paths.settings_file


async def test_nothing_secret_is_written_outside_the_key_store(
    planted: Home, work: Path, tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    home = amplifierd.open_home(planted.paths.home, offline=True)
    with caplog.at_level(logging.DEBUG):
        sessions = await do_everything(home, agent(tmp_path, kind).source(home, kind, tmp_path), work, tmp_path)
        await home.sessions.close()

    leaks, kept = set[str](), set[str]()
    for path in sorted(one for one in home.paths.home.rglob("*") if one.is_file() and not one.is_symlink()):
        place = re.sub(r"(session_)?[0-9a-f-]{16,}", "…", str(path.relative_to(home.paths.home)))
        for canary, event in found_in(path):
            if not is_allowed(canary, event, path, home):
                leaks.add(f"{canary} in {place} {event}")
            elif stat.S_IMODE(path.stat().st_mode) & 0o077 and not path.is_relative_to(home.paths.config):
                leaks.add(f"{canary} in {place}, which others can read")
            else:
                kept.add(canary)
    assert not leaks, "\n".join(sorted(leaks))
    assert {TOOL, SAID} <= kept, "what must be there is there: the search works"
    with zipfile.ZipFile(tmp_path / "session.export") as exported:
        text = "\n".join(exported.read(name).decode() for name in exported.namelist())
    assert [one for one in (ENVIRONMENT, NAMELESS, KEYRING, AUTHOR, OVERRIDE, SETTINGS, VENDOR) if one in text] == []
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("amplifierd"))
    assert [
        canary for canary in (ENVIRONMENT, NAMELESS, KEYRING, AUTHOR, OVERRIDE, TOOL, VENDOR) if canary in ours
    ] == []
    for session_id in sessions:
        shown = json.dumps([home.sessions.plan(session_id), home.sessions.get(session_id).model_dump(mode="json")])
        assert [one for one in (ENVIRONMENT, NAMELESS, KEYRING, AUTHOR, OVERRIDE) if one in shown] == []
