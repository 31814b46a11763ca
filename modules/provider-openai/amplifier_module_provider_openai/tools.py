"""Tools, the choice among them, and their calls as OpenAI accepts them."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_kit.messages.conversation import block_dict
from amplifier_kit.providers.messages import clean

NATIVE_TOOLS = frozenset(
    {"web_search_preview", "web_search_preview_2025_03_11", "web_search", "file_search", "code_interpreter"}
)

_NAME_LENGTH = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_CHOICES = {"none": "none", "auto": "auto", "required": "required", "any": "required"}


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that OpenAI runs itself, or the function that the caller offers; neither for what has no name."""

    native: dict[str, Any] | None = None
    function: dict[str, Any] | None = None


def call_id(given: str, longest: int) -> str:
    """Return an id no longer than the API takes; a longer one, of another vendor, has always the same stand-in."""
    return given if len(given) <= longest else f"call_{hashlib.sha256(given.encode()).hexdigest()[:24]}"


def tool_name(given: str) -> str:
    """Return the name of a tool that was called, in the characters that the API takes."""
    return _NOT_IN_NAMES.sub("_", given)[:_NAME_LENGTH] or "unknown"


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as the JSON text they travel in."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=str)


def offered_tool(tool: Any) -> OfferedTool:
    """Return a tool of a request; what OpenAI runs itself goes without what every specification of a tool must have."""
    fields = block_dict(tool)
    if fields.get("type") not in NATIVE_TOOLS:
        return OfferedTool(function=_function(fields))
    extras = fields if isinstance(tool, dict) else tool.model_extra or {}
    return OfferedTool(native={key: value for key, value in extras.items() if value is not None})


def _function(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return name, description, parameters and strictness of a tool, None for something that has no name."""
    inner = fields.get("function")
    fields = inner if isinstance(inner, dict) else fields
    if not fields.get("name"):
        return None
    parameters = fields.get("parameters") or fields.get("input_schema") or {}
    return {
        "name": fields["name"],
        "description": clean(fields.get("description") or ""),
        "parameters": clean({"type": "object", "properties": {}} | parameters),
        "strict": fields.get("strict") is True,
    }


def chosen_tool(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """Return a tool choice as one of `none`, `auto`, `required`, as `{"name": …}`, or an API's own form as it is."""
    if choice is None:
        return None
    if isinstance(choice, str):
        return _CHOICES.get(choice, {"name": choice})
    inner = choice.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else choice.get("name")
    if name:
        return {"name": name}
    return _CHOICES.get(str(choice.get("type")), choice)
