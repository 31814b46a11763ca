"""Messages as items of the Responses API."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.providers.messages import NormalMessage, NormalResult
from amplifier_kit.types import Block
from amplifier_module_provider_openai import tools
from amplifier_module_provider_openai.conversation import ConversationConverter, Item, WireForm, WireMessage

logger = logging.getLogger(__name__)

RESPONSE_ID = "openai:response_id"
HOSTED_ITEMS = "openai:items"

_LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class Input:
    """What a request says: the instructions, and everything else in order."""

    instructions: str
    items: list[Item]
    lost: frozenset[str]


class ItemConverter:
    """Converts messages, each once."""

    def __init__(self) -> None:
        self._converter = ConversationConverter(ItemForm())

    def convert(self, messages: Sequence[NormalMessage], *, replays: bool, has_vision: bool) -> Input:
        """Return the messages as input; `replays` includes the model's own reasoning and the items it was given."""
        conversation = self._converter.convert(messages, has_vision=has_vision)
        items = [item for message in conversation.said for item in message.items if replays or _is_said(item)]
        return Input(conversation.instructions, conversation.developer + _each_id_once(items), conversation.lost)


class ItemForm(WireForm):
    """The form of the Responses API."""

    def text_part(self, text: str) -> Item:
        return {"type": "input_text", "text": text}

    def image_part(self, url: str) -> Item:
        return {"type": "input_image", "image_url": url}

    def user(self, parts: list[Item]) -> Item:
        return {"role": "user", "content": parts}

    def assistant(self, message: NormalMessage) -> Iterable[Item]:
        """Return reasoning, text and calls in the order of the blocks, except that no text comes after a call."""
        items: list[Item] = []
        hosted = message.metadata.get(HOSTED_ITEMS)
        waiting = [item for item in hosted if isinstance(item, dict)] if isinstance(hosted, list) else []
        for block in message.blocks:
            if block["type"] in ("text", "tool_call"):
                items += waiting
                waiting = []
            match block["type"]:
                case "text" if block["text"]:
                    _add_text(items, block["text"])
                case "tool_call":
                    items.append(_call_item(block))
                case "thinking" | "reasoning" if item := _reasoning(block):
                    items.append(item)
        return without_open_reasoning(items + waiting)

    def results(self, results: Sequence[NormalResult], *, has_vision: bool) -> WireMessage:
        outputs = [self._output(result, has_vision=has_vision) for result in results]
        lost = frozenset[str]().union(*(lost for _, lost in outputs))
        return WireMessage(tuple(item for item, _ in outputs), lost=lost)

    def _output(self, result: NormalResult, *, has_vision: bool) -> tuple[Item, frozenset[str]]:
        output: Any = result.text
        lost: frozenset[str] = frozenset()
        if result.images:
            parts, lost = self.parts(result.images, has_vision=has_vision)
            output = [self.text_part(result.text), *parts] if result.text else parts
        call_id = tools.call_id(result.call_id, _LONGEST_ID)
        return {"type": "function_call_output", "call_id": call_id, "output": output}, lost


def without_open_reasoning(items: list[Item]) -> list[Item]:
    """Return items without the reasoning at their end, which the API refuses when nothing follows from it."""
    end = len(items)
    while end and items[end - 1].get("type") == "reasoning":
        end -= 1
    return items[:end]


def reasoning_item(reasoning_id: str, encrypted: str, summary: str) -> Item:
    """Return the item that gives a model its own reasoning back."""
    told = [{"type": "summary_text", "text": summary}] if summary else []
    return {"type": "reasoning", "id": reasoning_id, "encrypted_content": encrypted, "summary": told}


def assistant_item(text: str) -> Item:
    """Return what the model said."""
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _each_id_once(items: list[Item]) -> list[Item]:
    """Return the items with an id of its own for every call: other vendors use one again in a later turn."""
    times_used: dict[str, int] = {}
    latest: dict[str, str] = {}  # ids of calls that were renamed, each as the latest call has it
    kept: list[Item] = []
    for item in items:
        given = item.get("call_id")
        if given is not None:
            if item.get("type") == "function_call":
                if used := times_used.get(given, 0):
                    latest[given] = tools.call_id(f"{given}_again_{used}", _LONGEST_ID)
                times_used[given] = used + 1
            if given in latest:
                item = {**item, "call_id": latest[given]}
        kept.append(item)
    return kept


def _is_said(item: Item) -> bool:
    """Say whether an item is part of the conversation, rather than state that the vendor keeps itself."""
    return "role" in item or item.get("type") in ("function_call", "function_call_output", "message")


def _add_text(items: list[Item], text: str) -> None:
    place = next((at for at, item in enumerate(items) if item.get("type") == "function_call"), len(items))
    before = items[place - 1] if place else {}
    if before.get("role") == "assistant":
        before["content"].append({"type": "output_text", "text": text})
    else:
        items.insert(place, assistant_item(text))


def _call_item(block: Block) -> Item:
    return {
        "type": "function_call",
        "call_id": tools.call_id(block["id"], _LONGEST_ID),
        "name": tools.tool_name(block["name"]),
        "arguments": tools.arguments_text(block["input"]),
    }


def _reasoning(block: Block) -> Item | None:
    """Return the reasoning that the vendor can read again; that of other vendors has no such state."""
    reasoning_id, encrypted = _state(block)
    if reasoning_id and encrypted:
        return reasoning_item(reasoning_id, encrypted, _summary(block))
    if reasoning_id:
        logger.warning("provider-openai: reasoning %s has no encrypted content and is not sent back", reasoning_id)
    return None


def _state(block: Block) -> tuple[str | None, str | None]:
    """Return id and encrypted content of reasoning, in any of the forms in which they are stored."""
    match block.get("content"):
        case _ if block["type"] == "reasoning":
            state = (block.get("id"), block.get("encrypted_content"))
        case [{} as stored, *_]:
            state = (stored.get("id"), stored.get("encrypted_content"))
        case [encrypted, str() as reasoning_id]:
            state = (reasoning_id, encrypted)
        case [str() as reasoning_id] if reasoning_id.startswith("rs_"):
            state = (reasoning_id, None)
        case _:
            state = (None, None)
    found = [value if isinstance(value, str) and value else None for value in state]
    return found[0], found[1]


def _summary(block: Block) -> str:
    if block["type"] == "thinking":
        return sanitize_text(str(block.get("thinking") or ""))
    parts = block.get("summary") or ()
    return sanitize_text("\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")))
