"""Agent mode: a stand-in for a model that follows plain rules, so that a machine without a key shows a turn at work."""

import json
import re
from typing import Any

from .agent_rules import Step, find_steps, kinds
from .entries import Entry, EntryCall
from .turn_view import Answered, TurnView

_SHOWN_LINES = 20
_FAILED_TEXT = re.compile(
    r"(error|denied|access denied|permission denied|path not found|not found|invalid|command (denied|timed out)"
    r"|search timed out|failed|cannot|could not|tool '.*' not found)\b",
    re.IGNORECASE,
)


def agent_entry(view: TurnView) -> Entry:
    """Return the answer to a request: the next step as a tool call, or, when none is left, what came of them."""
    steps = find_steps(view.user_text)
    runnable = [(step, use) for step in steps if (use := step.way_with(view.offered))]
    if view.rounds < len(runnable):
        step, use = runnable[view.rounds]
        return Entry(text=step.action, tool_calls=(EntryCall(use.tool, use.arguments),))
    return Entry(text=_report(view, steps) if steps or view.results else _introduction())


def _report(view: TurnView, steps: list[Step]) -> str:
    parts = [_described(result) for result in view.results]
    parts += [
        f"{step.action} But that needs the tool {step.ways[0].tool}, which is not offered."
        for step in steps
        if step.way_with(view.offered) is None
    ]
    return "\n\n".join(parts)


def _introduction() -> str:
    examples = "\n".join(f"- {example}" for example in kinds())
    return (
        "This is the offline provider: it follows fixed rules and needs neither a key nor a network. "
        f"It understands four kinds of request, one after another with `then`:\n{examples}\n"
        "Anything else needs a configured model provider."
    )


def _described(result: Answered) -> str:
    data = _as_object(result.text)
    lines = (_readable(data) if data is not None else result.text).splitlines()
    shown = "\n".join(lines[:_SHOWN_LINES])
    if len(lines) > _SHOWN_LINES:
        shown += f"\n… and {len(lines) - _SHOWN_LINES} more lines"
    return f"{result.tool}{' failed' if _has_failed(result.text, data) else ''}:\n{shown}"


def _has_failed(text: str, data: dict[str, Any] | None) -> bool:
    if data is None:
        return bool(_FAILED_TEXT.match(text))
    return bool(data.get("error") or data.get("returncode") or data.get("cancelled") or data.get("success") is False)


def _as_object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _readable(data: dict[str, Any]) -> str:
    """Return a tool's output as a person would want to read it."""
    if isinstance(content := data.get("content"), str):
        return content
    if "stdout" in data or "stderr" in data:
        streams = [str(data[key]).rstrip("\n") for key in ("stdout", "stderr") if data.get(key)]
        code = data.get("returncode")
        return "\n".join([*streams, *([f"exit code {code}"] if code else [])]) or "(no output)"
    for key in ("matches", "results"):
        if isinstance(found := data.get(key), list):
            return "\n".join(_line(item) for item in found) or "(nothing found)"
    return "\n".join(f"{key}: {_line(value)}" for key, value in data.items())


def _line(item: Any) -> str:
    match item:
        case str():
            return item
        case {"file": file, "content": content}:
            number = item.get("line_number")
            return f"{file}:{content}" if number is None else f"{file}:{number}:{content}"
        case {"path": path}:
            return str(path)
    return json.dumps(item, ensure_ascii=False)
