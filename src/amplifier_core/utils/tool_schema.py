"""The JSON schema of a tool's input, whichever way the tool offers it."""

from typing import Any

from amplifier_core.boundary import at_once


def tool_schema(tool: object) -> dict[str, Any]:
    """Return `input_schema`, else what `get_schema()` returns; an object of anything where neither is a dict."""
    schema = getattr(tool, "input_schema", None)
    if not isinstance(schema, dict) and callable(get_schema := getattr(tool, "get_schema", None)):
        schema = at_once(get_schema())
    return schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
