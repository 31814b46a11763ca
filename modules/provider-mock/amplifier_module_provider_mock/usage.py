"""How many tokens the mock says it used."""

import json
from collections.abc import Mapping
from typing import Any

from amplifier_core import ChatRequest, Usage
from amplifier_core.utils import json_safe
from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.providers.messages import NormalMessage

from .entries import Entry, read_usage

_CHARACTERS_PER_TOKEN = 4
FIXED_TEXT = Usage(input_tokens=10, output_tokens=20, total_tokens=30)
FIXED_CALL = Usage(input_tokens=10, output_tokens=5, total_tokens=15)


class UsagePolicy:
    """Fixed numbers, an estimate from the length of what is said, or numbers of one's own."""

    def __init__(self, config: LenientConfig) -> None:
        given = config.raw("usage")
        self._is_estimate = given == "estimate"
        self._own: Usage | None = None
        if isinstance(given, Mapping):
            try:
                self._own = read_usage(given)
            except (TypeError, ValueError):
                config.refuse("usage", given, "fixed, estimate or token counts", "fixed")
        elif given not in (None, "fixed", "estimate"):
            config.refuse("usage", given, "fixed, estimate or token counts", "fixed")

    def usage(self, request: ChatRequest, messages: list[NormalMessage], entry: Entry) -> Usage:
        """Return what a call used."""
        if self._own is not None:
            return self._own
        if not self._is_estimate:
            return FIXED_CALL if entry.tool_calls else FIXED_TEXT
        tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools or []]
        taken = sum(_length(message) for message in messages) + sum(len(_json(tool)) for tool in tools)
        calls = sum(len(call.name) + len(_json(call.arguments)) for call in entry.tool_calls)
        return _counted(taken, len(entry.thinking or "") + len(entry.text or "") + calls)


def _counted(taken: int, given: int) -> Usage:
    taken, given = (-(-characters // _CHARACTERS_PER_TOKEN) for characters in (taken, given))
    return Usage(input_tokens=taken, output_tokens=given, total_tokens=taken + given)


def _length(message: NormalMessage) -> int:
    results = sum(len(result.text) for result in message.results)
    return results + sum(
        len(block["text"]) if block["type"] == "text" else len(_json(block)) for block in message.blocks
    )


def _json(value: Any) -> str:
    return json.dumps(json_safe(value), ensure_ascii=False, separators=(",", ":"))
