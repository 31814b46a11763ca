"""Content blocks as light dataclasses, for events and streaming; requests use the models in `message_models`.

`type` and `raw` come first in every class, so pass the rest by keyword. `raw` keeps what the vendor sent and is
never serialized.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class ContentBlockType(str, Enum):  # noqa: UP042 - StrEnum prints members differently
    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"


@dataclass
class ContentBlock:
    """What all blocks share."""

    type: ContentBlockType
    raw: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON data, without `raw`."""
        return {"type": self.type.value}


@dataclass
class TextContent(ContentBlock):
    """Text for the user."""

    type: ContentBlockType = ContentBlockType.TEXT
    text: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "text": self.text}


@dataclass
class ThinkingContent(ContentBlock):
    """What the model thought before it answered."""

    type: ContentBlockType = ContentBlockType.THINKING
    text: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "text": self.text}


@dataclass
class ToolCallContent(ContentBlock):
    """The model asks for a tool."""

    type: ContentBlockType = ContentBlockType.TOOL_CALL
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass
class ToolResultContent(ContentBlock):
    """What a tool answered; `error` is left out of the dict when there is none."""

    type: ContentBlockType = ContentBlockType.TOOL_RESULT
    tool_call_id: str = ""
    output: Any = None
    error: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        data = {**super().to_dict(), "tool_call_id": self.tool_call_id, "output": self.output}
        return {**data, "error": self.error} if self.error else data
