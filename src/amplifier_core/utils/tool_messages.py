"""The tool calls and results in messages, whichever way they are spelled.

Calls stand in `tool_calls` or in content blocks (`tool_call`, `tool_use`); their name is called `name`, `tool` or
`function.name`, their arguments are `arguments`, `input` or `function.arguments`, an object or JSON text. Results are
messages with the role `tool` (or `function`), user messages with a `tool_call_id`, or content blocks (`tool_result`).
Messages, calls and blocks may be dicts or objects.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

CALL_BLOCKS = frozenset({"tool_call", "tool_use"})
RESULT_BLOCK = "tool_result"
RESULT_ROLES = frozenset({"tool", "function"})

# By its class of class a model is recognised at once; to ask whether it is a mapping costs more than reading a field.
_MODEL = type(BaseModel)

M = TypeVar("M")


@dataclass(slots=True)
class Call:
    """One tool call; `problem` says why its arguments cannot be used, `id` is empty when it has none."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as it stands in a stored assistant message."""
        return {"id": self.id, "tool": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class Result:
    """What one tool call was answered with; `output` is as it was given."""

    call_id: str
    output: Any
    is_error: bool = False


def field_of(source: object, name: str) -> Any:
    """Return an item of a mapping or an attribute of an object, None when it has none."""
    kind = type(source)
    if kind is dict or (type(kind) is not _MODEL and isinstance(source, Mapping)):  # a dict is recognised at once
        return source.get(name)  # type: ignore[attr-defined]
    return getattr(source, name, None)


def block_type(block: object) -> str:
    """Return the type of a content block, a plain string or an enum."""
    kind = field_of(block, "type")
    return kind if type(kind) is str else str(getattr(kind, "value", kind))


def read_call(call: object) -> Call:
    """Return a tool call, in whatever spelling it is given."""
    name, given = field_of(call, "name") or field_of(call, "tool"), field_of(call, "arguments")
    if given is None:
        given = field_of(call, "input")
    if given is None or not name or not isinstance(name, str):  # another spelling than ours
        function = field_of(call, "function")
        names = (name, field_of(call, "tool"), field_of(function, "name"))
        name = next((name for name in names if name and isinstance(name, str)), "")
        given = field_of(function, "arguments") if given is None else given
    arguments, problem = (given, "") if type(given) is dict else _read_arguments(given)
    return Call(_call_id(call), name, arguments, problem)


def _call_id(call: object) -> str:
    """Return the id of a tool call, empty when it has none."""
    return _first_id(call, "id", "tool_call_id")


def read_result(block: object) -> Result | None:
    """Return the result in a content block, None if it is not one or says for which call."""
    if block_type(block) != RESULT_BLOCK or not (call_id := _first_id(block, "tool_call_id", "tool_use_id")):
        return None
    output = field_of(block, "output")
    return Result(
        call_id, field_of(block, "content") if output is None else output, field_of(block, "is_error") is True
    )


def listed_calls(message: object) -> list[Call]:
    """Return the calls in an assistant message's `tool_calls` that have an id: nothing could answer the others."""
    if field_of(message, "role") != "assistant":
        return []
    listed = field_of(message, "tool_calls")
    return [call for call in map(read_call, listed) if call.id] if listed and isinstance(listed, list | tuple) else []


def calls_in(message: object) -> list[Call]:
    """Return the calls that an assistant message makes and does not answer itself: the listed, then other blocks."""
    if field_of(message, "role") != "assistant":
        return []
    calls, content = listed_calls(message), field_of(message, "content")
    if isinstance(content, list | tuple):
        kinds = [block_type(block) for block in content]
        if not CALL_BLOCKS.isdisjoint(kinds):
            known = {call.id for call in calls}
            blocks = [block for block, kind in zip(content, kinds, strict=True) if kind in CALL_BLOCKS]
            calls += [read_call(block) for block in blocks if (called := _call_id(block)) and called not in known]
        if RESULT_BLOCK in kinds:
            answered = {result.call_id for block in content if (result := read_result(block))}
            calls = [call for call in calls if call.id not in answered]
    return calls


def results_in(message: object) -> list[Result] | None:
    """Return the results that a message brings, None when it is not there to bring any.

    Blocks say more than the message around them: its own `tool_call_id` counts when no block is a result.
    """
    role = field_of(message, "role")
    is_tool_message = role in RESULT_ROLES
    if not is_tool_message and role != "user":
        return None
    content = field_of(message, "content")
    blocks = content if isinstance(content, list | tuple) else ()
    if has_result_blocks(content):
        return [result for block in blocks if (result := read_result(block))]
    if call_id := _first_id(message, "tool_call_id"):
        return [Result(call_id, content, field_of(message, "is_error") is True)]
    return [] if is_tool_message else None


def has_result_blocks(content: object) -> bool:
    """True if a message's content itself holds results."""
    return isinstance(content, list | tuple) and any(block_type(block) == RESULT_BLOCK for block in content)


def with_stand_ins(messages: Sequence[M], stand_ins: Mapping[int, Collection[M]]) -> list[M]:
    """Return the messages with others put in directly after those at the places given."""
    return [each for place, message in enumerate(messages) for each in (message, *stand_ins.get(place, ()))]


def _read_arguments(given: Any) -> tuple[dict[str, Any], str]:
    """Return arguments as a dict, or an empty one and what is wrong with them."""
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else None
        except (ValueError, RecursionError) as exc:
            return {}, str(exc)
    if given is None or given == []:
        return {}, ""
    if not isinstance(given, dict):
        return {}, f"the arguments must be a JSON object, got {type(given).__name__}"
    return given, ""


def _first_id(source: object, *names: str) -> str:
    for name in names:
        if value := field_of(source, name):
            return value if type(value) is str else str(value)
    return ""
