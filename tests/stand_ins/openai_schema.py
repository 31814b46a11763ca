"""What OpenAI documents about its requests, read from the types of the vendor's own client."""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Required, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

_RESPONSES = importlib.import_module("openai.types.responses")
_CHAT = importlib.import_module("openai.types.chat")


@dataclass
class Problem(Exception):
    """A request that the vendor refuses."""

    message: str
    code: str | None = None
    param: str | None = None
    status: int = 400


def refuse_unless(condition: object, message: str, code: str | None = None, param: str | None = None) -> None:
    if not condition:
        raise Problem(message, code, param)


@dataclass(frozen=True)
class Shape:
    """An object of the API: the type of every field, and the fields that have to be there."""

    fields: dict[str, Any]
    required: frozenset[str]

    @classmethod
    def of(cls, *documented: Any) -> "Shape":
        """Return the shape of what the client describes as a typed dict; of several, what any of them has."""
        hints = [get_type_hints(kind, include_extras=True) for kind in documented]
        required = [{name for name, hint in one.items() if get_origin(hint) is Required} for one in hints]
        plain = {name: hint for kind in documented for name, hint in get_type_hints(kind).items()}
        return cls(plain, frozenset(set.intersection(*required)))

    def check_names(self, given: Any, param: str = "") -> None:
        """Refuse what is not an object, fields that are not documented, and an object that lacks one it needs."""
        refuse_unless(isinstance(given, dict), "Invalid type: expected an object.", "invalid_type", param or None)
        prefix = f"{param}." if param else ""
        for name in given:
            message = f"Unknown parameter: '{prefix}{name}'."
            refuse_unless(name in self.fields, message, "unknown_parameter", prefix + name)
        for name in sorted(self.required - set(given)):
            message = f"Missing required parameter: '{prefix}{name}'."
            raise Problem(message, "missing_required_parameter", prefix + name)

    def check_value(self, name: str, value: Any) -> None:
        """Refuse a value that is not of the type that is documented for the field."""
        try:
            _adapter(repr(self.fields[name]), self.fields[name]).validate_python(value, strict=True)
        except ValidationError as exc:
            reason = exc.errors()[0]["msg"]
            raise Problem(f"Invalid value for '{name}': {reason}", "invalid_value", name) from exc


_adapters: dict[str, TypeAdapter[Any]] = {}


def _adapter(key: str, hint: Any) -> TypeAdapter[Any]:
    if key not in _adapters:
        _adapters[key] = TypeAdapter(hint)
    return _adapters[key]


@cache
def response_request() -> Shape:
    """What may stand in a request of the Responses API; `input` could be missing for a stored prompt."""
    return _request(_RESPONSES.response_create_params.ResponseCreateParamsBase)


@cache
def chat_request() -> Shape:
    """What may stand in a request of the Chat Completions API."""
    return _request(_CHAT.completion_create_params.CompletionCreateParamsBase)


@cache
def response_items() -> dict[str, Shape]:
    """What may stand in `input`, by type; messages come in three forms."""
    return _by_type(get_args(_RESPONSES.ResponseInputItemParam))


@cache
def response_parts() -> dict[str, Shape]:
    """The parts of messages, by type, those of the user and those of the model; some of their fields have defaults."""
    said = (_RESPONSES.ResponseOutputTextParam, _RESPONSES.ResponseOutputRefusalParam)
    shapes = _by_type((*get_args(_RESPONSES.ResponseInputContentParam), *said))
    return {name: Shape(shape.fields, shape.required - {"annotations", "detail"}) for name, shape in shapes.items()}


@cache
def response_tool_types() -> frozenset[str]:
    """The types of tools that a response may use."""
    return frozenset(_by_type(get_args(_RESPONSES.ToolParam)))


@cache
def chat_messages() -> dict[str, Shape]:
    """The messages of a completion, by role."""
    return _by_type(get_args(_CHAT.ChatCompletionMessageParam), key="role")


@cache
def chat_parts() -> dict[str, Shape]:
    """The parts of a completion's messages, by type."""
    refusal = _CHAT.ChatCompletionContentPartRefusalParam
    return _by_type((*get_args(_CHAT.ChatCompletionContentPartParam), refusal))


def _request(documented: Any) -> Shape:
    shape = Shape.of(documented)
    return Shape({**shape.fields, "stream": bool | None}, shape.required)


def _by_type(documented: Iterable[Any], key: str = "type") -> dict[str, Shape]:
    kinds: dict[str, list[Any]] = {}
    for kind in documented:
        for name in _names_in(get_type_hints(kind)[key]):
            kinds.setdefault(name, []).append(kind)
    return {name: Shape.of(*group) for name, group in kinds.items()}


def _names_in(hint: Any) -> list[str]:
    """Return the words that a type stands for, `Literal["a", "b"]` or one that may also be missing."""
    found = [hint] if isinstance(hint, str) else [name for part in get_args(hint) for name in _names_in(part)]
    return list(dict.fromkeys(found))
