"""The values that modules, applications and the kernel hand to each other."""

import binascii
import json
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, field_serializer, field_validator, model_validator

from .message_models import ImageBlock, KernelModel, TextBlock, exact_cost
from .utils.assembly import set_extra, set_fields_set, set_private, set_values
from .utils.serialize import json_safe, sanitize_text

_IMAGE_MEDIA_TYPE = re.compile(r"image/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*")
_IMAGE_OMITTED = "[Image omitted from tool event; original retained for model request if unmodified.]"

Role = Literal["system", "user", "assistant"]


# pydantic reads the signature of a factory: at once where it is written in Python, by tokenizing a text for a built-in.
def _empty_list() -> list[Any]:
    return []


def _local_time() -> datetime:
    return datetime.now()


class ToolResult(KernelModel):
    """What a tool answers.

    `content` carries text and images for the model beside the plain `output`; it holds nothing but what a model
    request needs, and is left out of every dump when there is none.
    """

    model_config = ConfigDict(validate_assignment=True, hide_input_in_errors=True)

    success: bool = True
    output: Any | None = None
    error: dict[str, Any] | None = None
    content: list[TextBlock | ImageBlock] | None = Field(default=None, exclude_if=lambda content: not content)

    @model_validator(mode="before")
    @classmethod
    def _accept_is_error(cls, data: Any) -> Any:
        if isinstance(data, dict) and "is_error" in data:
            data = {"success": not data["is_error"], **data}
            del data["is_error"]
        return data

    @field_validator("content", mode="before")
    @classmethod
    def _reduce_content(cls, content: object) -> list[TextBlock | ImageBlock] | None:
        if content is None or content == []:
            return None
        if not isinstance(content, list):
            raise ValueError("invalid tool result content")  # noqa: TRY004 - pydantic turns a ValueError into its own
        return [_reduced(block) for block in content]

    @field_serializer("content")
    def _dump_content(self, content: object) -> list[dict[str, Any]]:
        return [block.model_dump(exclude_none=True) for block in self._reduce_content(content) or []]

    def model_post_init(self, _context: Any) -> None:
        """Let a failure without output speak through its error message."""
        if not self.success and self.output is None and isinstance(self.error, dict) and self.error.get("message"):
            self.output = self.error["message"]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with `update` applied, validated like a new result."""
        copied = super().model_copy(deep=deep)
        given = {name: value for name, value in copied if name in copied.model_fields_set}
        return type(self).model_validate({**given, **(update or {})})

    def __str__(self) -> str:
        if self.success:
            return str(self.output) if self.output else "Success"
        return f"Error: {self.error.get('message', 'Unknown error')}" if self.error else "Failed"

    def get_serialized_output(self) -> str:
        """Return what the model is told: the output as text or JSON, else success or the error."""
        if isinstance(self.output, (dict, list)):
            text = json.dumps(self.output, default=_decimal_as_text)
        elif self.output is not None:
            text = str(self.output)
        elif self.success:
            text = "Success"
        else:
            text = f"Error: {self.error.get('message') or 'Unknown error'}" if self.error else "Error: Failed"
        return sanitize_text(text)

    def safe_hook_presentation(self) -> dict[str, Any]:
        """Return the result as JSON data for events, with a note in place of each image."""
        shown: dict[str, Any] = json_safe({"success": self.success, "output": self.output, "error": self.error})
        if content := self._reduce_content(self.content):
            texts = (block.text if isinstance(block, TextBlock) else _IMAGE_OMITTED for block in content)
            shown["content"] = [{"type": "text", "text": text} for text in texts]
        return shown


def _reduced(block: object) -> TextBlock | ImageBlock:
    """Return a block with nothing but its content; refuse what is neither text nor an inline image."""
    match vars(block) if isinstance(block, BaseModel) else block:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text=text)
        case {"type": "image", **fields}:
            return ImageBlock(source=_reduced_source(fields.get("source")))
    raise ValueError("invalid tool result content")


def _reduced_source(source: object) -> dict[str, str]:
    match source:
        case {"type": "base64", **fields}:
            media_type, data = fields.get("media_type"), fields.get("data")
        case _:
            raise ValueError("invalid tool result image source")
    if not (isinstance(media_type, str) and _IMAGE_MEDIA_TYPE.fullmatch(media_type)):
        raise ValueError("invalid tool result image media type")
    if not (isinstance(data, str) and _is_canonical_base64(data)):
        raise ValueError("invalid tool result image data")
    return {"type": "base64", "media_type": media_type, "data": data}


def _is_canonical_base64(data: str) -> bool:
    try:
        return data != "" and binascii.b2a_base64(binascii.a2b_base64(data), newline=False) == data.encode("ascii")
    except ValueError:
        return False


def _decimal_as_text(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


class ContextInjection(KernelModel):
    """One message a hook adds to the conversation, and which hook on which event it was."""

    content: str
    role: Role = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    hook_name: str = "unknown"
    event: str = ""


class HookResult(KernelModel):
    """A handler's answer to an event. `action` decides which of the other fields count."""

    action: Literal["continue", "deny", "modify", "inject_context", "ask_user"] = "continue"
    data: dict[str, Any] | None = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: Role = "system"
    ephemeral: bool = False
    approval_prompt: str | None = None
    approval_options: list[str] | None = None
    approval_timeout: float = 300.0
    approval_default: Literal["allow", "deny"] = "deny"
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: Literal["info", "warning", "error"] = "info"
    user_message_source: str | None = None
    append_to_last_tool_result: bool = False
    context_injections: list[ContextInjection] = Field(default_factory=_empty_list)

    if not TYPE_CHECKING:  # to a type checker the constructor takes the fields above

        def __init__(self, /, **fields: Any) -> None:
            """Take the short way for a plain `continue` and for other data, the answers of nearly every handler.

            There is nothing in them that pydantic would change, so they are put together as it does after validation.
            """
            if type(self) is not HookResult:
                super().__init__(**fields)
            elif not fields or fields == _PLAIN_CONTINUE:
                _put_together(self, {}, {"action"} if fields else set())
            elif fields.keys() == _OTHER_DATA and fields["action"] == "modify" and is_plain_data(fields["data"]):
                _put_together(self, {"action": "modify", "data": fields["data"].copy()}, set(fields))
            else:
                super().__init__(**fields)

        # Says that the above does what pydantic's own does, so that validating a dict need not call it.
        __init__.__pydantic_base_init__ = True


_PLAIN_CONTINUE = {"action": "continue"}
_OTHER_DATA = {"action", "data"}
_TEXT = frozenset({str})
_HOOK_RESULT_DEFAULTS = {name: field.default for name, field in HookResult.model_fields.items()}


def is_plain_data(data: object) -> bool:
    """True if something is the data of an event: a dict with texts as keys, and of no other class."""
    return type(data) is dict and _TEXT.issuperset(map(type, data))


def _put_together(result: HookResult, values: dict[str, Any], given: set[str]) -> None:
    """Fill in a result as pydantic does with values that it has validated."""
    set_values(result, {**_HOOK_RESULT_DEFAULTS, **values, "context_injections": []})
    set_fields_set(result, given)
    set_extra(result, None)
    set_private(result, None)


def continuing(data: dict[str, Any]) -> HookResult:
    """Return a `continue` that carries `data` itself, neither copied nor validated."""
    result = HookResult.__new__(HookResult)
    _put_together(result, {"data": data}, {"action", "data"})
    return result


class Pricing(KernelModel):
    """What a model costs, per million tokens."""

    input_per_million: float
    output_per_million: float
    cache_read_per_million: float | None = None
    cache_write_per_million: float | None = None
    currency: str = "USD"

    @field_validator("currency")
    @classmethod
    def _check_currency(cls, currency: str) -> str:
        if not re.fullmatch("[A-Z]{3}", currency):
            raise ValueError(f"currency must be a 3-letter ISO 4217 code, got {currency!r}")
        return currency


class ModelInfo(KernelModel):
    """One model a provider offers; `capabilities` are names from `amplifier_core.capabilities` and others."""

    id: str
    display_name: str
    context_window: int
    max_output_tokens: int
    capabilities: list[str] = Field(default_factory=_empty_list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    pricing: Pricing | None = None


class ConfigField(KernelModel):
    """One question an application asks to set a provider up; `show_when` names answers that make it apply."""

    id: str
    display_name: str
    prompt: str
    field_type: Literal["text", "secret", "choice", "boolean"] = "text"
    env_var: str | None = None
    choices: list[str] | None = None
    required: bool = True
    default: str | None = None
    show_when: dict[str, str] | None = None
    requires_model: bool = False


class ProviderInfo(KernelModel):
    """What a provider says about itself."""

    id: str
    display_name: str
    credential_env_vars: list[str] = Field(default_factory=_empty_list)
    capabilities: list[str] = Field(default_factory=_empty_list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    config_fields: list[ConfigField] = Field(default_factory=_empty_list)


class ModuleInfo(KernelModel):
    """A module as discovery finds it."""

    id: str
    name: str
    version: str
    type: Literal["orchestrator", "provider", "tool", "context", "hook", "resolver"]
    mount_point: str
    description: str
    config_schema: dict[str, Any] | None = None


class SessionStatus(KernelModel):
    """How a session is doing. The kernel keeps `status`, `last_error` and `load_failures`, applications the rest."""

    session_id: str
    started_at: datetime = Field(default_factory=_local_time)
    ended_at: datetime | None = None
    status: Literal["running", "completed", "failed", "cancelled"] = "running"
    total_messages: int = 0
    tool_invocations: int = 0
    tool_successes: int = 0
    tool_failures: int = 0
    total_input_tokens: int = 0
    total_output_tokens: int = 0
    cost_usd: Annotated[Decimal, exact_cost("1.23"), PlainSerializer(str, return_type=str)] | None = None
    last_activity: datetime | None = None
    last_error: dict[str, Any] | None = None
    load_failures: list[dict[str, Any]] = Field(default_factory=_empty_list)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON data, without what is unset."""
        return self.model_dump(mode="json", exclude_none=True)
