"""What goes to a language model and what comes back, the same for every vendor.

Models given inside other models are kept as they are, neither copied nor validated again: a stored message is
converted once and reused in every later request.
"""

import importlib
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

Visibility = Literal["internal", "developer", "user"]


def exact_cost(example: str) -> BeforeValidator:
    def refuse_float(value: object) -> object:
        if isinstance(value, float):
            raise ValueError(  # noqa: TRY004 - pydantic turns a ValueError into its own
                f"cost_usd must be Decimal, not float. Use Decimal({example!r}) — floats lose monetary precision."
            )
        return value

    return BeforeValidator(refuse_float)


class KernelModel(BaseModel):
    """Base of the kernel's models: pydantic prepares a class when it is first used, so importing costs little."""

    model_config = ConfigDict(defer_build=True)


# Preparing its first class, pydantic imports what reads the entry points of its own plug-ins. That is done here, now:
# later, a test may have put other entry points in their place for a while, and pydantic would keep those for good.
with suppress(ImportError):
    importlib.import_module("pydantic.plugin._loader")


class _Open(KernelModel):
    """Keeps the fields it does not know, so that vendors can add their own."""

    model_config = ConfigDict(extra="allow")


class _Block(_Open):
    type: str
    visibility: Visibility | None = None


class TextBlock(_Block):
    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(_Block):
    """The model's thoughts; `signature` has to be sent back unchanged."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str | None = None
    content: list[Any] | None = None


class RedactedThinkingBlock(_Block):
    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


class ToolCallBlock(_Block):
    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(_Block):
    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    output: Any


class ImageBlock(_Block):
    type: Literal["image"] = "image"
    source: dict[str, Any]


class ReasoningBlock(_Block):
    type: Literal["reasoning"] = "reasoning"
    content: list[Any]
    summary: list[Any]


ContentBlockUnion = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolCallBlock | ToolResultBlock | ImageBlock | ReasoningBlock,
    Field(discriminator="type"),
]


class Message(_Open):
    role: Literal["system", "developer", "user", "assistant", "function", "tool"]
    content: str | list[ContentBlockUnion]
    name: str | None = None
    tool_call_id: str | None = None
    metadata: dict[str, Any] | None = None


class ToolSpec(_Open):
    """A tool as the model is shown it; `parameters` is a JSON schema."""

    name: str
    parameters: dict[str, Any]
    description: str | None = None


class ToolCall(_Open):
    """The model asks for a tool."""

    id: str
    name: str
    arguments: dict[str, Any]

    @property
    def input(self) -> dict[str, Any]:
        """Another name for `arguments`."""
        return self.arguments


class Degradation(_Open):
    """The provider did less than was asked, and says why."""

    requested: str
    actual: str
    reason: str


class ResponseFormatText(KernelModel):
    type: Literal["text"] = "text"


class ResponseFormatJson(KernelModel):
    type: Literal["json"] = "json"


class ResponseFormatJsonSchema(KernelModel):
    type: Literal["json_schema"] = "json_schema"
    json_schema: dict[str, Any] = Field(serialization_alias="schema")
    strict: bool | None = None


ResponseFormat = ResponseFormatText | ResponseFormatJson | ResponseFormatJsonSchema


class Usage(_Open):
    """Tokens and money one call took. A cost of `None` is unknown, not zero."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Annotated[Decimal, exact_cost("0.047"), PlainSerializer(str, return_type=str)] | None = None


class ChatRequest(_Open):
    messages: list[Message]
    tools: list[ToolSpec] | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    conversation_id: str | None = None
    stream: bool | None = False
    metadata: dict[str, Any] | None = None
    model: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    stop: list[str] | None = None
    reasoning_effort: str | None = None
    timeout: float | None = None


class ChatResponse(_Open):
    content: list[ContentBlockUnion]
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    degradation: Degradation | None = None
    finish_reason: str | None = None
    metadata: dict[str, Any] | None = None
