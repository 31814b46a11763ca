"""The input of a tool, as people type it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .failures import UsageError
from .suggestions import did_you_mean


def read_input(pairs: Sequence[str], given: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input that `KEY=VALUE` pairs and a JSON object make together; pairs count more.

    `given` is JSON, `@FILE`, or `-` for stdin. A value is a text where the schema asks for one, else JSON if it is.

    Raises:
        UsageError: something is neither.
    """
    found = _object(given) if given is not None else {}
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is not KEY=VALUE", hint=_example(known))
        if known and key not in known and schema.get("additionalProperties") is not True:
            hint = did_you_mean(key, known) or f"it takes {', '.join(known)}"
            raise UsageError(f"the tool takes no {key!r}", hint=hint)
        found[key] = _value(text, known.get(key))
    return found


def _object(given: str) -> dict[str, Any]:
    try:
        if given == "-":
            text = sys.stdin.read()
        else:
            text = Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given
    except OSError as error:
        raise UsageError(f"{given[1:]} cannot be read: {error.strerror}", hint="name a file with JSON") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the input is not JSON: {error}", hint='write an object, as in \'{"path": "."}\'') from error
    if not isinstance(value, dict):
        raise UsageError("the input is not an object", hint='write one, as in \'{"path": "."}\'')
    return value


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _example(known: Mapping[str, Any]) -> str:
    return f"write it as {next(iter(known), 'key')}=VALUE"
