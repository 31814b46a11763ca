"""Ids of child sessions."""

import re
import uuid

_SPAWNED = re.compile(r"[0-9a-f]{16}-([0-9a-f]{16})_")
_TRACE = re.compile(r"[0-9a-f]{32}")
_NO_PARENT = "0" * 16


def generate_sub_session_id(
    agent_name: str | None = None, parent_session_id: str | None = None, parent_trace_id: str | None = None
) -> str:
    """Return `<parent>-<child>_<agent>`: sixteen hex digits each for parent and child, then the agent's name.

    The parent's digits are those by which its own id names it; for a parent with another kind of id they come from the
    trace, or are zeros.
    """
    parent = _NO_PARENT
    if spawned := _SPAWNED.match(parent_session_id or ""):
        parent = spawned[1]
    elif parent_trace_id is not None and _TRACE.fullmatch(parent_trace_id):
        parent = parent_trace_id[8:24]
    return f"{parent}-{uuid.uuid4().hex[:16]}_{_sanitized(agent_name)}"


def _sanitized(agent_name: str | None) -> str:
    return re.sub(r"[^a-z0-9]+", "-", (agent_name or "").lower()).strip("-") or "agent"
