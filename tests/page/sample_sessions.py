"""Sessions that the tests of the page look at: one that asks before it writes, one that delegates, one that is long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .page_daemon import PageDaemon

ASKS = {"module": "hooks-approval", "config": {"ask_user_fallback": True}}

_HOOK = """
import asyncio

from amplifier_core import HookResult


async def mount(coordinator, config=None):
    async def remind(event, data):
        await asyncio.sleep(0.06)
        return HookResult(action="inject_context", context_injection="Never mention cheese.", ephemeral=True)

    coordinator.hooks.register("provider:request", remind, name="hooks-cheese")
"""
_PROFILE = """---
profile: {name: cheese, version: 1.0.0, extends: foundation/offline, schema_version: 2}
hooks:
- {module: hooks-cheese, source: ./hooks-cheese}
---
Talk about food.
"""
"""A hook that takes its time and injects something, and a profile that has it."""


def create(daemon: PageDaemon, plan: dict[str, Any], name: str) -> str:
    """Create a session with a plan, and return its id."""
    body = {"mount_plan": plan, "working_dir": str(daemon.directory), "name": name}
    session_id: str = daemon.api.post("/sessions", json=body).raise_for_status().json()["session_id"]
    return session_id


def session_of(daemon: PageDaemon, profile: str) -> str:
    """Create a session of a profile, and return its id."""
    body = {"profile_name": profile, "working_dir": str(daemon.directory)}
    session_id: str = daemon.api.post("/sessions", json=body).raise_for_status().json()["session_id"]
    return session_id


def plan_of(*script: Any, **parts: Any) -> dict[str, Any]:
    """Return a plan whose model says these things, with the file tools; `parts` replaces parts of it."""
    provider = {"script": [*script], "on_exhausted": "canned", "tool_trigger": None}
    return {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": provider}],
        "tools": [{"module": "tool-filesystem"}],
        "hooks": [],
        "agents": {},
        **parts,
    }


def calls(tool: str, *, text: str = "", **arguments: Any) -> dict[str, Any]:
    """Return a step of a script that calls a tool."""
    return {"text": text, "tool_calls": [{"name": tool, "arguments": arguments}]}


def asking_session(daemon: PageDaemon, file: str, name: str, *answers: str) -> str:
    """Create a session that wants to write a file, and asks first; then it gives these answers."""
    writes = calls("write_file", text="I write it.", file_path=file, content="written\n")
    return create(daemon, plan_of(writes, *(answers or ("The end: {{last_tool_result}}",)), hooks=[ASKS]), name)


def delegating_session(daemon: PageDaemon, name: str, *, asks: bool = False) -> str:
    """Create a session whose first turn gives work to an agent, which may ask before it writes down what it found."""
    reads = calls("read_file", text="I look at it.", file_path="reviewed.py")
    writes = [calls("write_file", file_path="review.md", content="fine\n")] if asks else []
    provider = plan_of(reads, *writes, "Nothing to complain of.")["providers"]
    (daemon.directory / "reviewed.py").write_text("answer = 42\n")
    delegates = calls("task", text="I ask the reviewer.", agent="reviewer", instruction="Review reviewed.py")
    parts = {
        "tools": [{"module": "tool-filesystem"}, {"module": "tool-task"}],
        "hooks": [ASKS] if asks else [],
        "agents": {"reviewer": {"description": "reviews", "providers": provider}},
    }
    return create(daemon, plan_of(delegates, "The reviewer is content.", **parts), name)


def transcript_of(daemon: PageDaemon, session_id: str) -> Path:
    """Return the file of what was said in a session."""
    return daemon.directory.parent / "home/state/sessions" / session_id / "transcript.jsonl"


def write_history(daemon: PageDaemon, session_id: str, turns: int) -> None:
    """Give a session that was never loaded a past of four messages a turn."""
    with transcript_of(daemon, session_id).open("a", encoding="utf-8") as lines:
        for turn in range(1, turns + 1):
            call = {"id": f"call_{turn}", "name": "read_file", "input": {"file_path": f"file_{turn}.py"}}
            spoken: list[tuple[str, Any, dict[str, Any]]] = [
                ("user", f"Question {turn}.", {}),
                ("assistant", [{"type": "text", "text": "I look."}, {"type": "tool_call", **call}], {}),
                ("tool", '{"content": "1\\tx"}', {"tool_call_id": call["id"], "name": "read_file"}),
                ("assistant", [{"type": "text", "text": f"Answer {turn}."}], {}),
            ]
            for place, (role, content, more) in enumerate(spoken):
                message = {
                    "id": f"msg_{turn:06}_{place}",
                    "timestamp": "2026-01-01T00:00:00.000000Z",
                    "role": role,
                    "content": content,
                    "turn": turn,
                    "correlation_id": f"prompt_{session_id}_{turn}",
                    **more,
                }
                lines.write(f"{json.dumps(message)}\n")


def session_with_a_hook(daemon: PageDaemon) -> str:
    """Create a session of a profile whose hook `hooks-cheese` takes a while at each request, and injects something."""
    profiles = daemon.directory.parent / "home/config/profiles"
    package = profiles / "hooks-cheese/amplifier_module_hooks_cheese"
    if not package.exists():
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(_HOOK)
        (profiles / "cheese.md").write_text(_PROFILE)
    return session_of(daemon, "local/cheese")
