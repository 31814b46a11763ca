"""What pydantic finds wrong with a value, in the words of a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NUMBER, _WHOLE, _SWITCH = "must be a number", "must be a whole number", "must be true or false"
_WORDS = {
    "bool_parsing": _SWITCH,
    "bool_type": _SWITCH,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}


def in_words(problem: Mapping[str, Any]) -> str:
    """Return what one entry of `ValidationError.errors()` says, without its place and value."""
    words = _WORDS.get(problem["type"])
    if words is None:
        return str(problem["msg"]).removeprefix("Value error, ")
    return words.format(**problem.get("ctx", {}))
