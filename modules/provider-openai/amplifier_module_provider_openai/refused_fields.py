"""Fields that a server does not know: left out once it has refused them."""

import re
from collections.abc import Mapping
from typing import Any

from amplifier_kit.providers.errors import VendorFailure

from .errors import message_of

CHAT_FIELDS = (
    "stream_options",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "max_completion_tokens",
    "seed",
    "tool_choice",
    "strict",
)
RESPONSES_FIELDS = ("store", "include", "truncation", "reasoning", "parallel_tool_calls", "text", "strict")

_RENAMED = {"max_completion_tokens": "max_tokens"}
_REFUSING = (400, 422)
_WORDS = frozenset({"store", "include", "reasoning", "text"})
_AS_A_NAME = r"(?:['\"`]|(?:parameter|argument|field|supplied|permitted|body)s?[:.]? ?)"
_REFUSED = r"(?:support|unsupported|unknown|unexpected|unrecognized):? "
_IS_REFUSED = r" is (?:not (?:supported|allowed|permitted|available|implemented|known)|un(?:supported|known))"


class RefusedFields:
    """What one server refuses among `fields`, learned from its answers."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields
        self.names: set[str] = set()

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body without the fields that are refused, or with their other name."""
        if not self.names:
            return body
        accepted = {_RENAMED.get(key, key) if key in self.names else key: value for key, value in body.items()}
        accepted = {key: value for key, value in accepted.items() if key not in self.names}
        return _without_strict(accepted) if "strict" in self.names else accepted

    def learn(self, failure: VendorFailure | None, sent: dict[str, Any]) -> str | None:
        """Return the field of what was sent that the server has refused just now, None when it was something else."""
        if failure is None or failure.status not in _REFUSING:
            return None
        for field in self._fields:
            is_sent = _has_strict(sent) if field == "strict" else field in sent
            if is_sent and field not in self.names and _names(failure, field):
                self.names.add(field)
                return field
        return None


def _names(failure: VendorFailure, field: str) -> bool:
    """Say whether an answer is about a field. A name that is also a word has to stand out as a name."""
    body = failure.body if isinstance(failure.body, Mapping) else {}
    param = body.get("param")
    if isinstance(param, str) and param:
        return field in re.split(r"[.\[\]]+", param)
    name = rf"\b{field}\b"
    pattern = rf"{_AS_A_NAME}{name}|{_REFUSED}{name}|{name}{_IS_REFUSED}" if field in _WORDS else name
    return re.search(pattern, message_of(failure), re.IGNORECASE) is not None


def _has_strict(body: dict[str, Any]) -> bool:
    return any("strict" in item for item in _strict_places(body))


def _strict_places(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a body in which `strict` may stand."""
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
    formats = [(body.get("response_format") or {}).get("json_schema"), (body.get("text") or {}).get("format")]
    functions = [tool.get("function") for tool in tools]
    return [item for item in (*tools, *functions, *formats) if isinstance(item, dict)]


def _without_strict(value: Any) -> Any:
    """Return the body without `strict`; a schema's own properties of that name stay."""
    body = dict(value)
    if "tools" in body:
        body["tools"] = [_relaxed(tool) for tool in body["tools"]]
    for key in ("response_format", "text"):
        if isinstance(body.get(key), dict):
            body[key] = {name: _relaxed(item) for name, item in body[key].items()}
    return body


def _relaxed(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    relaxed = {key: value for key, value in item.items() if key != "strict"}
    if isinstance(relaxed.get("function"), dict):
        relaxed["function"] = _relaxed(relaxed["function"])
    return relaxed
