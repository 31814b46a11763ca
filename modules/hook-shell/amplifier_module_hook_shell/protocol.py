"""What a hook is told about an event, and what its answer means."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .declarations import claude_name

Decision = Literal["", "allow", "deny", "ask"]

PLAIN_TEXT_EVENTS = frozenset({"SessionStart", "UserPromptSubmit"})
BLOCKING_EVENTS = frozenset({"PreToolUse", "UserPromptSubmit", "PermissionRequest"})

PERMISSION_MODES = {"plan": "plan", "ask": "default", "edits": "acceptEdits", "auto": "bypassPermissions"}

_BLOCKED = 2
_NO_REASON = "a hook blocked this and gave no reason"
_DECISIONS: Mapping[str, Decision] = {
    **{"block": "deny", "deny": "deny", "approve": "allow", "allow": "allow", "ask": "ask"},
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What one hook answers; `error` says why it could not."""

    decision: Decision = ""
    reason: str = ""
    message: str = ""
    context: str = ""
    updated_input: Mapping[str, Any] | None = None
    is_quiet: bool = False
    error: str = ""


def subject_of(event: str, data: Mapping[str, Any]) -> str | None:
    """Return what a matcher is compared with, None where every hook of the event runs."""
    match event:
        case "PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "PermissionRequest":
            return _text(data, "tool_name")
        case "PreCompact":
            return _text(data, "trigger") or "auto"
        case "SubagentStart" | "SubagentStop":
            return _text(data, "agent")
        case "SessionStart":
            return _text(data, "source")
        case "SessionEnd":
            return _text(data, "reason") or "other"
        case "Notification":
            return _text(data, "notification_type") or _text(data, "level")
    return None


def fields_of(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event beyond those that all have."""
    match event:
        case "PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "PermissionRequest":
            return _of_tool(event, data)
        case "UserPromptSubmit":
            return {"prompt": _text(data, "prompt")}
        case "Stop":
            return {"stop_hook_active": False}
        case "PreCompact":
            return {"trigger": _text(data, "trigger") or "auto", "custom_instructions": ""}
        case "SessionStart":
            return {"source": _text(data, "source")}
        case "SessionEnd":
            return {"reason": _text(data, "reason") or "other"}
        case "Notification":
            return {"message": _text(data, "message"), "notification_type": subject_of(event, data)}
        case "SubagentStart" | "SubagentStop":
            return {"agent_id": _text(data, "sub_session_id"), "agent_type": _text(data, "agent")}
    return {}


def _of_tool(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    name, tool_input = _text(data, "tool_name"), data.get("tool_input")
    fields = {
        "tool_name": claude_name(name),
        "amplifier_tool_name": name,
        "tool_input": tool_input if isinstance(tool_input, Mapping) else {},
        "tool_use_id": _text(data, "tool_call_id"),
    }
    if event.startswith("PostToolUse"):
        result = data.get("tool_result", data.get("result"))
        fields |= {"tool_response": result, "tool_result": result}
    return fields


def read_reply(event: str, code: int, stdout: str, stderr: str) -> Reply:
    """Return what a command that ended with an exit code of 0 or 2 has answered."""
    if code == _BLOCKED:
        return Reply("deny", stderr.strip() or stdout.strip() or _NO_REASON)
    try:
        answer = json.loads(stdout)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return Reply(context=stdout.strip() if event in PLAIN_TEXT_EVENTS else "")
    specific = answer.get("hookSpecificOutput")
    specific = specific if isinstance(specific, dict) else {}
    given = [_DECISIONS.get(str(each).lower(), "") for each in _decisions(answer, specific)]
    decision: Decision = next((each for each in ("deny", "ask", "allow") if each in given), "")
    reason = _text(specific, "permissionDecisionReason") or _text(answer, "reason")
    if answer.get("continue") is False:
        decision, reason = "deny", _text(answer, "stopReason") or reason
    updated = specific.get("updatedInput")
    return Reply(
        decision,
        reason or (_NO_REASON if decision == "deny" else ""),
        _text(answer, "systemMessage"),
        "\n\n".join(filter(None, (_text(answer, "contextInjection"), _text(specific, "additionalContext")))),
        updated if isinstance(updated, dict) else None,
        answer.get("suppressOutput") is True,
    )


def _decisions(answer: Mapping[str, Any], specific: Mapping[str, Any]) -> list[Any]:
    nested = specific.get("decision")  # of a PermissionRequest: `{"behavior": "deny", …}`
    behavior = nested.get("behavior") if isinstance(nested, dict) else nested
    return [answer.get("decision"), specific.get("permissionDecision"), behavior]


def read_verdict(text: str) -> Reply:
    """Return what a model answered to the question of a prompt hook: `{"ok": …, "reason": …}`."""
    begin, end = text.find("{"), text.rfind("}")
    try:
        answer = json.loads(text[begin : end + 1])
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        return Reply(error="the answer of the model is no JSON with `ok`")
    return Reply("allow") if answer["ok"] else Reply("deny", _text(answer, "reason") or _NO_REASON)


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
