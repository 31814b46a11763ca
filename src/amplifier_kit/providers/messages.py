"""Messages in one plain form, before a provider turns them into its vendor's.

Stored conversations spell the same thing in several ways: tool calls in content blocks or beside them, results as
messages or as blocks, arguments as objects or as JSON text. `normalize` reads them all. A provider keeps the outcome in
an `IdentityCache`, pairs calls and results with a `ToolSequence`, and converts what is left to its own format.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from amplifier_core.utils.serialize import sanitize_text
from amplifier_core.utils.tool_messages import (
    CALL_BLOCKS,
    RESULT_BLOCK,
    RESULT_ROLES,
    Result,
    block_type,
    field_of,
    has_result_blocks,
    read_call,
    results_in,
)
from amplifier_kit.messages.conversation import block_dict, output_text
from amplifier_kit.types import Block, Config

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
    metadata: Config = field(default_factory=dict)
    calls: tuple[Block, ...] = field(init=False)

    def __post_init__(self) -> None:
        blocks = self.blocks if self.role == "assistant" else ()
        object.__setattr__(self, "calls", tuple(block for block in blocks if block["type"] == "tool_call"))

    @property
    def text(self) -> str:
        """The text blocks, joined by a blank line."""
        return "\n\n".join(block["text"] for block in self.blocks if block["type"] == "text" and block["text"])

    @property
    def as_context_file(self) -> str:
        """A developer's message as the file it is presented as; empty when it has no text."""
        return f"<context_file>\n{self.text}\n</context_file>" if self.text.strip() else ""

    @property
    def is_real_user(self) -> bool:
        """True if a person said it, rather than a tool or a hook."""
        return self.role == "user" and not self.results and not self.text.startswith("<system-reminder>")


def normalize(message: object) -> NormalMessage:
    """Return a message, model or dict, in plain form; the message itself is not changed."""
    role = str(field_of(message, "role"))
    content = field_of(message, "content")
    results = results_in(message) or []
    is_result_itself = bool(results) and not has_result_blocks(content)
    blocks = [] if is_result_itself else _read_content(content)
    if role == "assistant":
        blocks = [*_stored_thinking(message, blocks), *blocks, *_calls(field_of(message, "tool_calls"))]
        blocks = _each_call_once(blocks)
    name, metadata = field_of(message, "name"), field_of(message, "metadata")
    return NormalMessage(
        role="tool" if role in RESULT_ROLES else role,
        blocks=tuple(blocks),
        results=tuple(_normal(result) for result in results),
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


def _read_content(content: Any) -> list[Block]:
    """Return the blocks of a message's content, without results."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": sanitize_text(content)}]
    blocks: list[Block] = []
    for given in content:
        kind = block_type(given)
        if kind in CALL_BLOCKS:
            blocks += _calls([given])
        elif kind != RESULT_BLOCK:
            fields = {key: value for key, value in block_dict(given).items() if key not in _NEVER_SENT}
            fields = {key: value for key, value in fields.items() if value is not None}
            blocks.append({**(fields if kind in _UNTOUCHED_BLOCKS else clean(fields)), "type": kind})
    return blocks


def _stored_thinking(message: object, blocks: list[Block]) -> list[Block]:
    """Return the thinking that is stored beside the content, if the content holds none."""
    stored = field_of(message, "thinking_block")
    if not isinstance(stored, dict) or any(block["type"] in _THINKING_BLOCKS for block in blocks):
        return []
    return _read_content([{"type": "thinking", **stored}])


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


def _calls(given: object) -> list[Block]:
    """Return tool calls as blocks; nothing could ever answer a call without an id."""
    calls = map(read_call, given) if isinstance(given, list | tuple) else ()
    return [
        {"type": "tool_call", "id": call.id, "name": call.name, "input": clean(call.arguments)}
        for call in calls
        if call.id
    ]


def _normal(result: Result) -> NormalResult:
    output = result.output
    images = tuple(
        {"type": "image", "source": block_dict(block).get("source")}
        for block in (output if isinstance(output, list) else ())
        if block_type(block) == "image"
    )
    return NormalResult(result.call_id, output_text(output), images, result.is_error)


V = TypeVar("V")
S = TypeVar("S")


class IdentityCache(Generic[V]):
    """Values by the identity of the object they were made of; each goes when its object does.

    The requests of a conversation hold the same message objects again and again, so that a provider converts each
    message once. What is kept must not depend on where the message stands.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[object], V]] = {}

    def get(self, source: S, make: Callable[[S], V]) -> V:
        """Return what was made of this very object, or make it now."""
        return self.get_all((source,), make)[0]

    def get_all(self, sources: Iterable[S], make: Callable[[S], V]) -> list[V]:
        """Return what was made of each of these very objects, or make it now."""
        known = self._kept
        return [
            kept[1] if (kept := known.get(id(source))) is not None and kept[0]() is source else self._make(source, make)
            for source in sources
        ]

    def __len__(self) -> int:
        return len(self._kept)

    def _make(self, source: S, make: Callable[[S], V]) -> V:
        key = id(source)
        value = make(source)
        try:
            reference: weakref.ref[object] = weakref.ref(source, lambda gone: self._drop(key, gone))
        except TypeError:  # a plain dict: converted every time
            return value
        self._kept[key] = (reference, value)
        return value

    def _drop(self, key: int, gone: "weakref.ref[object]") -> None:
        kept = self._kept.get(key)
        if kept is not None and kept[0] is gone:  # the place may belong to a newer object by now
            del self._kept[key]
