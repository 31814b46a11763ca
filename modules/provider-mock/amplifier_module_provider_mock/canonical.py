"""A request in a form in which two can be compared: what the model sees, and nothing else."""

import hashlib
import json
from typing import Any

from amplifier_core import ChatRequest
from amplifier_core.utils import json_safe

_ABSENT = "(absent)"
_SHOWN_CHARACTERS = 200


def canonical_request(request: ChatRequest) -> dict[str, Any]:
    """Return a request as JSON data, without null values and without metadata of request, messages and blocks."""
    data: dict[str, Any] = _without_nulls(json_safe(request))
    data.pop("metadata", None)
    for message in data.get("messages", []):
        message.pop("metadata", None)
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                block.pop("metadata", None)
    return data


def canonical_text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def request_hash(data: dict[str, Any]) -> str:
    """Return the hash of a canonical request."""
    return f"sha256:{hashlib.sha256(canonical_text(data).encode('utf-8', 'surrogatepass')).hexdigest()}"


def first_difference(recorded: Any, given: Any, path: str = "") -> tuple[str, str, str] | None:
    """Return where two values differ first, as key path and both values, each cut; None when they are equal."""
    if isinstance(recorded, dict) and isinstance(given, dict):
        places = [(f"{path}.{key}" if path else key, key) for key in sorted({*recorded, *given})]
        pairs = ((place, recorded.get(key, _ABSENT), given.get(key, _ABSENT)) for place, key in places)
    elif isinstance(recorded, list) and isinstance(given, list):
        length = max(len(recorded), len(given))
        padded = [[*values, *[_ABSENT] * (length - len(values))] for values in (recorded, given)]
        pairs = ((f"{path}[{index}]", padded[0][index], padded[1][index]) for index in range(length))
    elif recorded == given:
        return None
    else:
        return path, _shown(recorded), _shown(given)
    found = (first_difference(one, other, place) for place, one, other in pairs)
    return next((difference for difference in found if difference), None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_text(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
