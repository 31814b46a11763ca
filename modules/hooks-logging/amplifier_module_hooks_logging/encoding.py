"""Values as JSON text, whatever they are."""

import json
from typing import Any

from amplifier_core.utils import json_safe

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_safe)
_canonical = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_safe, sort_keys=True)


def encode(value: Any) -> str:
    """Return `value` as one line of JSON."""
    return _encode(_encoder, value)


def encode_canonical(value: Any) -> str:
    """Return `value` as JSON that does not depend on the order of keys."""
    return _encode(_canonical, value)


def _encode(encoder: json.JSONEncoder, value: Any) -> str:
    """Encode `value`; most is JSON data already, and converting all of it first would cost more than the rest."""
    try:
        return encoder.encode(value)
    except (TypeError, ValueError, RecursionError):  # odd keys, cycles, numbers JSON does not have, deep nesting
        return encoder.encode(json_safe(value))
