"""The response of a provider: the kernel's, with its content once more in the form that events and displays use."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from amplifier_core import ChatResponse, ToolCall
from amplifier_core.content_models import TextContent, ThinkingContent, ToolCallContent
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_kit.messages.conversation import text_of
from amplifier_kit.types import JsonObject

MirrorBlock = TextContent | ThinkingContent | ToolCallContent


class ProviderResponse(ChatResponse):
    """`content_blocks` mirrors `content`, `text` joins its text blocks; both are None when there is nothing."""

    content_blocks: list[MirrorBlock] | None = None
    text: str | None = None

    @classmethod
    def of(cls, content: list[Any], **fields: Any) -> Self:
        """Return a response whose mirror, text and, unless they are given, tool calls follow from its content."""
        calls: list[ToolCall] | None = [
            ToolCall(id=block.id, name=block.name, arguments=block.input)
            for block in content
            if isinstance(block, ToolCallBlock)
        ]
        return cls(
            content=content,
            tool_calls=fields.pop("tool_calls", calls) or None,
            content_blocks=[mirror for block in content if (mirror := _mirror(block))] or None,
            text=text_of(content).strip() or None,
            **fields,
        )


def parse_tool_calls(response: ChatResponse) -> list[ToolCall]:
    """Return the calls of a response that have arguments, which may be empty."""
    calls = getattr(response, "tool_calls", None) or []
    return [call for call in calls if getattr(call, "arguments", None) is not None]


def _mirror(block: object) -> MirrorBlock | None:
    match block:
        case TextBlock(text=text):
            return TextContent(text=text)
        case ThinkingBlock(thinking=thinking):
            return ThinkingContent(text=thinking)
        case ToolCallBlock(id=call_id, name=name, input=arguments):
            return ToolCallContent(id=call_id, name=name, arguments=arguments)
    return None


_PARTS = ("limit", "remaining", "reset")


def read_rate_limits(headers: Mapping[str, str], name: str, kinds: Iterable[str]) -> JsonObject:
    """Return `{requests_limit: 50, …}` for what is limited; `name` is a header's, with `{kind}` and `{part}` in it.

    Numbers that cannot be read are left out; when a limit is reset stays a text.
    """
    limits: JsonObject = {}
    for kind in kinds:
        for part in _PARTS:
            given = headers.get(name.format(kind=kind, part=part))
            if given is not None and (part == "reset" or given.strip().isdecimal()):
                limits[f"{kind.replace('-', '_')}_{part}"] = given if part == "reset" else int(given)
    return limits
