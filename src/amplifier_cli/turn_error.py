"""The error of a failed turn in the words of a person: what went wrong, and what to type next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_UNEXPECTED = "for details: amplifier --debug …, or command.log in the logs of the home"


def error_lines(error: Mapping[str, Any]) -> Iterator[str]:
    """Yield what went wrong and, where something helps, what to do."""
    yield f"error: {_readable(error)}"
    hint = error.get("hint") or (_UNEXPECTED if error.get("code") == "internal-error" else None)
    if hint:
        yield f"  fix: {hint}"


def _readable(error: Mapping[str, Any]) -> str:
    """Return the detail of an error; of the JSON that a vendor answers, its message."""
    detail = str(error.get("detail"))
    try:
        answer = json.loads(detail)
    except ValueError:
        return detail
    inner = answer.get("error") if isinstance(answer, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    status = error.get("upstream_status")
    who = f"{error.get('provider') or 'the provider'} refused the request{f' ({status})' if status else ''}"
    return f"{who}: {message}" if message else detail
