"""The arguments of a tool call, as models write them."""

import json
import re
from typing import Any

from amplifier_core.llm_errors import InvalidToolCallError

_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n?(.*?)\n?\s*```\s*\Z", re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)


def parse_arguments(tool_name: str, given: Any, **details: Any) -> dict[str, Any]:
    """Return the arguments as a dict; nothing at all means none.

    Code fences and trailing commas are forgiven. Anything else that is not a JSON object is an `InvalidToolCallError`:
    a call is never made with arguments that the model did not write.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, dict):
        return given
    raw = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    parsed = _parse(raw)
    if isinstance(parsed, dict):
        return parsed
    raise InvalidToolCallError(
        f"the model called {tool_name!r} with arguments that are not a JSON object: {raw[:200]}",
        tool_name=tool_name,
        raw_arguments=raw,
        **details,
    )


def _parse(raw: str) -> Any:
    unfenced = _FENCE.sub(r"\1", raw)
    for text in (
        raw,
        unfenced,
        _STRING_OR_TRAILING_COMMA.sub(lambda found: found[0] if found[0] != "," else "", unfenced),
    ):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return None
