"""Messages in one plain form, before a provider turns them into its vendor's.

Stored conversations spell the same thing in several ways: tool calls in content blocks or beside them, results as
messages or as blocks, arguments as objects or as JSON text. `normalize` reads them all. A provider keeps the outcome in
an `IdentityCache`, pairs calls and results with a `ToolSequence`, and converts what is left to its own format.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_core.utils import json_safe
from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.messages.conversation import block_dict, block_type, read_calls

Block = dict[str, Any]

_CALL_BLOCKS = frozenset({"tool_call", "tool_use"})
_RESULT_BLOCK = "tool_result"
_THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})
_UNTOUCHED_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning", "image"})  # signed, encrypted or binary
_NEVER_SENT = frozenset({"visibility", "metadata"})


@dataclass(frozen=True, slots=True, eq=False)
class NormalResult:
    """What one tool call was answered with; `images` are image blocks beside the text."""

    call_id: str
    text: str
    images: tuple[Block, ...] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NormalMessage:
    """One message: its blocks in order, without tool results, which stand apart.

    Blocks are dicts with the fields of the kernel's models: `text`, `thinking`, `redacted_thinking`, `reasoning`,
    `image`, `tool_call` (`id`, `name`, `input`), and others as they were given; `calls` are those that call tools.
    `name` and `metadata` are for the provider to look at, never to send.
    """

    role: str
    blocks: tuple[Block, ...] = ()
    results: tuple[NormalResult, ...] = ()
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Block, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", tuple(block for block in self.blocks if block["type"] == "tool_call"))

    @property
    def text(self) -> str:
        """The text blocks, joined by a blank line."""
        return "\n\n".join(block["text"] for block in self.blocks if block["type"] == "text" and block["text"])

    @property
    def is_real_user(self) -> bool:
        """Whether a person said it, rather than a tool or a hook."""
        return self.role == "user" and not self.results and not self.text.startswith("<system-reminder>")


def normalize(message: Any) -> NormalMessage:
    """Return a message, model or dict, in plain form; the message itself is not changed."""
    role = str(_field(message, "role"))
    role = "tool" if role == "function" else role
    content = _field(message, "content")
    blocks, results = _read_content(content)
    if role == "assistant":
        blocks = [*_stored_thinking(message, blocks), *blocks, *_calls(_field(message, "tool_calls"))]
        blocks = _each_call_once(blocks)
    elif (call_id := _field(message, "tool_call_id")) and not results:
        results = [_result(str(call_id), content, _field(message, "is_error"))]
        blocks = []
    name, metadata = _field(message, "name"), _field(message, "metadata")
    return NormalMessage(
        role=role,
        blocks=tuple(blocks),
        results=tuple(results) if role in ("tool", "user") else (),
        name=name if isinstance(name, str) else None,
        metadata=metadata if isinstance(metadata, Mapping) else {},
    )


def clean(value: Any) -> Any:
    """Return JSON data without the characters that vendors refuse, in all of its text."""
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


def result_text(output: Any) -> str:
    """Return a tool's output as text: a string as it is, else its text blocks, else compact JSON."""
    if isinstance(output, str):
        return sanitize_text(output)
    if isinstance(output, list):
        texts = [_field(block, "text") for block in output if block_type(block) == "text"]
        if texts:
            return sanitize_text("".join(text for text in texts if isinstance(text, str)))
        if output and all(block_type(block) == "image" for block in output):
            return ""
    if output is None:
        return ""
    return sanitize_text(json.dumps(json_safe(output), ensure_ascii=False, separators=(",", ":")))


def _read_content(content: Any) -> tuple[list[Block], list[NormalResult]]:
    if content is None or content == "":
        return [], []
    if isinstance(content, str):
        return [{"type": "text", "text": sanitize_text(content)}], []
    blocks: list[Block] = []
    results: list[NormalResult] = []
    for given in content:
        kind = block_type(given)
        if kind in _CALL_BLOCKS:
            blocks += _calls([given])
        elif kind == _RESULT_BLOCK:
            if call_id := _field(given, "tool_call_id") or _field(given, "tool_use_id"):
                output = _field(given, "output")
                output = _field(given, "content") if output is None else output
                results.append(_result(str(call_id), output, _field(given, "is_error")))
        else:
            fields = {key: value for key, value in block_dict(given).items() if key not in _NEVER_SENT}
            fields = {key: value for key, value in fields.items() if value is not None}
            blocks.append({**(fields if kind in _UNTOUCHED_BLOCKS else clean(fields)), "type": kind})
    return blocks, results


def _stored_thinking(message: Any, blocks: list[Block]) -> list[Block]:
    """Return the thinking that is stored beside the content, if the content holds none."""
    stored = _field(message, "thinking_block")
    if not isinstance(stored, dict) or any(block["type"] in _THINKING_BLOCKS for block in blocks):
        return []
    return _read_content([{"type": "thinking", **stored}])[0]


def _each_call_once(blocks: list[Block]) -> list[Block]:
    """Return the blocks without calls whose id was there before: most are stored in the content and beside it."""
    seen: set[str] = set()
    kept: list[Block] = []
    for block in blocks:
        if block["type"] == "tool_call":
            if block["id"] in seen:
                continue
            seen.add(block["id"])
        kept.append(block)
    return kept


def _calls(given: Any) -> list[Block]:
    return list(_iterate_calls(given)) if isinstance(given, list | tuple) else []


def _iterate_calls(given: Any) -> Iterator[Block]:
    for item in given:
        if _field(item, "id") or _field(item, "tool_call_id"):  # nothing could ever answer a call without an id
            (call,) = read_calls([item])
            yield {"type": "tool_call", "id": call.id, "name": call.name, "input": clean(call.arguments)}


def _result(call_id: str, output: Any, is_error: Any) -> NormalResult:
    images = tuple(
        {"type": "image", "source": block_dict(block).get("source")}
        for block in (output if isinstance(output, list) else ())
        if block_type(block) == "image"
    )
    return NormalResult(call_id, result_text(output), images, is_error is True)


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else getattr(source, name, None)
