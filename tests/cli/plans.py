"""Mount plans whose model follows a script."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plan_file(
    folder: Path,
    script: Sequence[Any],
    *,
    provider: Mapping[str, Any] | None = None,
    guarded: bool = False,
    agents: Mapping[str, Any] | None = None,
    broken: str | None = None,
) -> str:
    """Write a plan whose model says what the script has, and return its path; `guarded` asks before commands run.

    `broken` names a tool that is not there.
    """
    config = {"script": [*script], "on_exhausted": "canned", "tool_trigger": None, **(provider or {})}
    plan: dict[str, Any] = {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": config}],
        "tools": [{"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"sandbox": "off"}}],
        "hooks": [{"module": "hooks-approval", "config": {"ask_user_fallback": True}}] if guarded else [],
    }
    if broken:
        plan["tools"] = [*plan["tools"], {"module": broken}]
    if agents:
        plan["tools"] = [*plan["tools"], {"module": "tool-task", "config": {"exclude_tools": ["tool-task"]}}]
        plan["agents"] = dict(agents)
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    return str(file)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a step of a script: the model calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}
