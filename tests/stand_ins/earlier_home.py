"""Writes the home that a test of compatibility opens: run it with the sources of the commit that is meant.

    PYTHONPATH=OTHER/src python tests/stand_ins/earlier_home.py TARGET.tar.gz [TARGET.sql postgresql://…?schema=earlier]

The archive has a home with a session of a profile, one of a bundle from a git repository that is gone afterwards, and
one of a plan; all have a turn with a tool call. The database, if one is named, gets a session of the plan.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

import amplifierd

BASE = Path("/tmp/amplifier-earlier")
REPLIES = [
    {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "notes.md", "content": "Milk."}}]},
    "Noted.",
    "Still here.",
]
PROVIDER = {"module": "provider-mock", "config": {"script": REPLIES, "on_exhausted": "canned", "tool_trigger": None}}
SECTIONS: dict[str, Any] = {
    "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
    "providers": [PROVIDER],
    "tools": [{"module": "tool-filesystem"}],
}
HEAD = {"profile": {"name": "worker", "version": "1.0.0", "description": "At work", "schema_version": 2}}
BUNDLE = {"bundle": {"name": "worker", "version": "1.0.0"}}
GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


def _markdown(file: Path, front: dict[str, Any], body: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\n{yaml.safe_dump(front)}---\n{body}\n")


def _repository(folder: Path) -> str:
    _markdown(folder / "bundle.md", {**BUNDLE, **SECTIONS}, "You work for a bundle.")
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Add the bundle"]):
        subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)
    return f"git+{folder.as_uri()}@main"


async def write(home_path: Path, work: Path, **settings: Any) -> None:
    home = amplifierd.open_home(home_path, overrides=settings or None)
    _markdown(home.paths.own_profiles / "worker.md", {**HEAD, **SECTIONS}, "You work for a profile.")
    sources: dict[str, dict[str, Any]] = {"earlier-plan": {"plan": SECTIONS}}
    if not settings:
        (BASE / "repository").mkdir()
        sources |= {
            "earlier-profile": {"profile": "local/worker"},
            "earlier-bundle": {"bundle": _repository(BASE / "repository")},
        }
    for session_id, source in sources.items():
        async with home.sessions.open(**source, session_id=session_id, working_dir=work) as session:
            result = await session.execute("Remember the milk")
            assert result.response == "Noted.", result
    await home.sessions.close()


def _is_local(name: str) -> bool:
    """True for what only says something about the machine that it was written on."""
    return "/fingerprints/host-" in name or name.startswith(("home/state/logs", "home/state/run", "home/cache/locks"))


def main(target: Path, dump: Path | None = None, address: str = "") -> None:
    shutil.rmtree(BASE, ignore_errors=True)
    work = BASE / "work"
    work.mkdir(parents=True)
    try:
        if dump is not None:
            asyncio.run(write(BASE / "other", work, store=address))
            server, _, schema = address.partition("?schema=")
            command = ["pg_dump", "--no-owner", "--inserts", f"--schema={schema}", server]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            dump.write_text(re.sub(r"(?m)^(\\.*|--.*|)\n", "", text))
        asyncio.run(write(BASE / "home", work))
        with tarfile.open(target, "w:gz") as archive:
            archive.add(BASE / "home", "home", filter=lambda member: None if _is_local(member.name) else member)
    finally:
        shutil.rmtree(BASE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *([Path(sys.argv[2]), sys.argv[3]] if len(sys.argv) > 2 else []))
