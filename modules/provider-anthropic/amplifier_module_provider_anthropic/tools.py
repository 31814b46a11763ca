"""The tools a request offers, and which of them the model is told to use."""

from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_core import ToolSpec
from amplifier_kit.providers.messages import clean
from amplifier_kit.types import Block

_FORCED = ("any", "tool")
_WORDS = {"auto": "auto", "none": "none", "required": "any", "any": "any"}


def convert_tool(spec: ToolSpec) -> Block:
    """Return one tool for a request; one of the vendor's own, which has a type, goes as it is."""
    extras = spec.model_extra or {}
    if native_type(spec):
        return {"name": spec.name, **{key: value for key, value in extras.items() if value is not None}}
    tool = {
        "name": spec.name,
        "description": clean(spec.description or ""),
        "input_schema": {"type": "object", **clean(spec.parameters)},
    }
    return {**tool, "strict": extras["strict"]} if extras.get("strict") is not None else tool


def native_type(spec: ToolSpec) -> str | None:
    """Return the type of a tool of the vendor's own, None for every other."""
    kind = (spec.model_extra or {}).get("type")
    return kind if isinstance(kind, str) and kind != "function" else None


def mark_last_function(tools: list[Block], marker: Block) -> None:
    """Put a cache marker on the last tool that is not the vendor's own."""
    place = next((place for place in reversed(range(len(tools))) if "input_schema" in tools[place]), None)
    if place is not None:
        tools[place] = {**tools[place], "cache_control": marker}


def convert_tool_choice(choice: Any, tools: Sequence[Block], *, is_parallel: bool) -> Block | None:
    """Return the field `tool_choice`, None when there is nothing to say or the tool to be forced is not offered."""
    if not tools:
        return None
    offered = {tool["name"] for tool in tools}
    wire = _choice(choice, offered)
    if wire is not None and wire.get("type") == "tool" and wire.get("name") not in offered:
        wire = None
    if is_parallel or (wire is not None and wire.get("type") == "none"):
        return wire
    return {**(wire or {"type": "auto"}), "disable_parallel_tool_use": True}


def asks_for_tool(choice: Any) -> bool:
    """Say whether a caller wants a tool to be called, in whatever words."""
    word = choice.get("type") if isinstance(choice, Mapping) else choice
    return word not in (None, "", "auto", "none")


def is_forced(choice: Block | None) -> bool:
    """Say whether the model must call a tool."""
    return choice is not None and choice.get("type") in _FORCED


def _choice(choice: Any, offered: set[str]) -> Block | None:
    match choice:
        case str() if choice in _WORDS:
            return {"type": _WORDS[choice]}
        case str() if choice in offered:
            return {"type": "tool", "name": choice}
        case {"type": "function", "function": {"name": str() as name}}:
            return {"type": "tool", "name": name}
        case {"type": "function", "name": str() as name}:
            return {"type": "tool", "name": name}
        case {"type": "required"}:
            return {"type": "any"}
        case Mapping():
            return dict(choice)
    return None
