"""Messages as items of the Responses API."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.providers.messages import IdentityCache, NormalMessage, NormalResult
from amplifier_kit.providers.options import JsonSchema, WarnOnce, wanted_format, with_extras
from amplifier_kit.types import Block

from . import tools
from .conversation import ConversationConverter, Item, WireForm, WireMessage, parse_arguments
from .pending_request import PendingRequest, Prepared, note_lost, output_cap, resolve_reasoning
from .settings import OpenAISettings, parse_chaining
from .tools import OfferedTool, chosen_tool, offered_tool

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
    lines = [{"type": "summary_text", "text": summary}] if summary else []
    return {"type": "reasoning", "id": reasoning_id, "encrypted_content": encrypted, "summary": lines}


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
    """True if an item is part of the conversation, rather than state that the vendor keeps itself."""
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


_CALLS = frozenset({"function_call", "tool_call"})


@dataclass(slots=True)
class Answer:
    """One or more response objects that make up an answer: each but the first continues the one before."""

    content: list[Any] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)  # what a continuation is told was said
    metadata: dict[str, Any] = field(default_factory=dict)
    is_refusal: bool = False
    is_cut: bool = False  # by the cap on output
    has_partial_call: bool = False
    continuations: int = 0
    output_count: int = 0
    _is_text_open: bool = False

    @property
    def calls(self) -> list[ToolCallBlock]:
        return [block for block in self.content if isinstance(block, ToolCallBlock)]

    @property
    def finish_reason(self) -> str:
        if self.calls:
            return "tool_calls"
        if self.metadata.get("openai:incomplete_reason") == "content_filter":
            return "content_filter"
        if self.is_cut:
            return "length"
        return "refusal" if self.is_refusal else "stop"

    def add(self, response: dict[str, Any], **details: Any) -> None:
        """Take in a response; `details` go into the error for a call whose arguments cannot be read."""
        output = [item for item in response.get("output") or () if isinstance(item, dict)]
        reason = (response.get("incomplete_details") or {}).get("reason")
        is_incomplete = response.get("status") == "incomplete"
        parsed = [self._parse(item, details, is_last=item is output[-1], is_cut=is_incomplete) for item in output]
        self.has_partial_call = any(blocks is None for blocks in parsed)
        self.is_cut = is_incomplete and reason in (None, "max_output_tokens")
        self.output_count += len(output)
        for item, blocks in zip(output, parsed, strict=True):
            is_continued = self._is_text_open and item.get("type") == "message"
            if is_continued and blocks:
                self._continue_text(blocks.pop(0).text)
            self.content += blocks or ()
            self._keep(item, is_continued=is_continued)
        self._is_text_open = bool(self.is_cut and output and output[-1].get("type") == "message")
        self._note(response, reason)

    def continuation_input(self) -> list[Item]:
        """Return what was said so far, as the input that a continuation goes on from."""
        return without_open_reasoning(self.items)

    def _parse(self, item: Item, details: dict[str, Any], *, is_last: bool, is_cut: bool) -> list[Any] | None:
        """Return the blocks of an item, None for a call that was cut off."""
        match item.get("type"):
            case "message":
                return [block for part in item.get("content") or () if (block := self._text_block(part))]
            case "reasoning":
                return _thinking(item)
            case kind if kind in _CALLS:
                if is_cut and (item.get("status") == "incomplete" or (is_last and not _is_complete(item))):
                    return None
                arguments = parse_arguments(str(item.get("name")), item.get("arguments"), **details)
                call_id = str(item.get("call_id") or item.get("id"))
                return [ToolCallBlock(id=call_id, name=str(item.get("name")), input=arguments)]
        return []

    def _text_block(self, part: dict[str, Any]) -> TextBlock | None:
        if part.get("type") == "refusal" and part.get("refusal"):
            self.is_refusal = True
            return TextBlock(text=part["refusal"])
        if part.get("type") != "output_text" or not part.get("text"):
            return None
        annotations = part.get("annotations")
        return TextBlock.model_validate({"text": part["text"]} | ({"annotations": annotations} if annotations else {}))

    def _continue_text(self, text: str) -> None:
        place = next(at for at in range(len(self.content) - 1, -1, -1) if isinstance(self.content[at], TextBlock))
        open_block = self.content[place]
        self.content[place] = open_block.model_copy(update={"text": open_block.text + text})
        self._is_text_open = False

    def _keep(self, item: Item, *, is_continued: bool) -> None:
        """Keep an item for a continuation, and what has no block for the requests to come."""
        match item.get("type"):
            case "message":
                parts = item.get("content") or ()
                text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
                said = [kept for kept in self.items if kept.get("role") == "assistant"]
                if text and is_continued and said:
                    said[-1]["content"][0]["text"] += text
                elif text:
                    self.items.append(assistant_item(text))
            case "reasoning":
                if item.get("encrypted_content") and item.get("id"):
                    self.items.append(reasoning_item(item["id"], item["encrypted_content"], _thought(item)))
                if item.get("id"):
                    self.metadata.setdefault("openai:reasoning_items", []).append(item["id"])
            case kind if kind not in _CALLS:
                self.items.append(item)
                self.metadata.setdefault(HOSTED_ITEMS, []).append(item)

    def _note(self, response: dict[str, Any], reason: str | None) -> None:
        self.metadata[RESPONSE_ID] = response.get("id")
        self.metadata["openai:status"] = response.get("status")
        self.metadata.pop("openai:incomplete_reason", None)
        if reason:
            self.metadata["openai:incomplete_reason"] = reason
        if self.continuations:
            self.metadata["openai:continuation_count"] = self.continuations


def _is_complete(item: Item) -> bool:
    try:
        parse_arguments("", item.get("arguments"))
    except InvalidToolCallError:
        return False
    return bool(item.get("arguments"))


def _thinking(item: Item) -> list[Any]:
    text, encrypted = _thought(item), item.get("encrypted_content")
    if not text and not encrypted:
        return []
    state = [encrypted, item.get("id")]
    return [ThinkingBlock(thinking=text, signature=None, visibility="internal", content=state)]


def _thought(item: Item) -> str:
    for parts in (item.get("summary"), item.get("content")):
        text = "\n".join(part["text"] for part in parts or () if isinstance(part, dict) and part.get("text"))
        if text:
            return text
    return ""


_MIN_OUTPUT_TOKENS = 16
_ENCRYPTED_REASONING = "reasoning.encrypted_content"


@dataclass(slots=True)
class RequestBuilder:
    """Builds requests for one provider."""

    settings: OpenAISettings
    warn: WarnOnce
    is_chaining_lost: bool = False  # the server does not keep responses
    _converter: ItemConverter = field(default_factory=ItemConverter)
    _offered: IdentityCache[OfferedTool] = field(default_factory=IdentityCache)

    def build(self, asked: PendingRequest) -> Prepared:
        """Return the request; an effort that the model does not know is an `InvalidRequestError`."""
        settings, options, facts = self.settings, asked.options, asked.facts
        is_chaining = self._is_chaining(asked)
        convert = self._converter.convert
        full = convert(asked.messages, replays=not is_chaining, has_vision=facts.supports_vision)
        last = _last_response(asked) if is_chaining and not asked.is_repaired else None
        chained_to, rest = None, full
        if last is not None:
            chained_to = last.metadata[RESPONSE_ID]
            place = next(at for at, message in enumerate(asked.messages) if message is last)
            rest = convert(asked.messages[place + 1 :], replays=False, has_vision=facts.supports_vision)
        self._note_shortfalls(asked, full)
        store = is_chaining or settings.enable_state
        reasoning = resolve_reasoning(asked, settings)
        cap = output_cap(asked, settings)
        body = {
            "model": options.model,
            "input": rest.items,
            "store": store,
            "instructions": full.instructions or None,
            "max_output_tokens": None if cap is None else max(cap, _MIN_OUTPUT_TOKENS),
            "temperature": options.temperature,
            "top_p": options.top_p,
            "reasoning": reasoning,
            "include": None if store or not _will_reason(asked, reasoning) else [_ENCRYPTED_REASONING],
            **self._tools(asked),
            "max_tool_calls": asked.given.get("max_tool_calls"),
            "truncation": settings.truncation,
            "text": self._text(asked),
            "prompt_cache_key": settings.prompt_cache_key,
            "prompt_cache_retention": self._retention(asked),
            "safety_identifier": settings.safety_identifier,
            "previous_response_id": chained_to,
        }
        body = {key: value for key, value in body.items() if value is not None}
        body["stream"] = options.streams
        return Prepared(with_extras(body, settings.extra_request_params, self.warn), full.items, chained_to)

    def _is_chaining(self, asked: PendingRequest) -> bool:
        given = asked.given.get("enable_response_chaining")
        chaining = (None if given is None else parse_chaining(given)) or self.settings.enable_response_chaining
        wants = chaining == "true" or (chaining == "auto" and asked.facts.supports_reasoning)
        return wants and not self.is_chaining_lost

    def _tools(self, asked: PendingRequest) -> dict[str, Any]:
        tools: list[dict[str, Any]] = []
        for offered in self._offered.get_all(asked.tools, offered_tool):
            if offered.native:
                tools.append(offered.native)
            elif offered.function:
                tools.append({"type": "function", **offered.function})
        if not tools:
            return {}
        choice = chosen_tool(asked.options.tool_choice) or "auto"
        if isinstance(choice, dict) and set(choice) == {"name"}:
            choice = {"type": "function", **choice}
        return {
            "tools": tools,
            "tool_choice": choice,
            "parallel_tool_calls": self.settings.parallel_tool_calls,
        }

    def _text(self, asked: PendingRequest) -> dict[str, Any] | None:
        text: dict[str, Any] = {}
        wanted = wanted_format(asked.request.response_format)
        if isinstance(wanted, JsonSchema):
            text["format"] = {"type": "json_schema", **wanted.to_dict()}
        elif wanted:
            text["format"] = {"type": wanted}
        if self.settings.text_verbosity:
            text["verbosity"] = self.settings.text_verbosity
        return text or None

    def _retention(self, asked: PendingRequest) -> str | None:
        retention = self.settings.prompt_cache_retention
        if retention is None or not asked.facts.rejects_retention(retention):
            return retention
        logger.warning("provider-openai: %s rejects prompt_cache_retention %r", asked.options.model, retention)
        return None

    def _note_shortfalls(self, asked: PendingRequest, full: Input) -> None:
        if asked.options.stop:
            asked.shortfalls.add("stop", "the answer is not stopped", "the Responses API has no stop sequences")
        note_lost(asked, full.lost)


def _will_reason(asked: PendingRequest, reasoning: dict[str, Any] | None) -> bool:
    effort = (reasoning or {}).get("effort")
    return effort != "none" if effort is not None else asked.facts.supports_reasoning


def _last_response(asked: PendingRequest) -> NormalMessage | None:
    """Return the last answer that the vendor has kept, if what was said since can be sent without what was before."""
    stored = asked.stored
    for place in range(len(stored) - 1, -1, -1):
        response_id = stored[place].metadata.get(RESPONSE_ID) if stored[place].role == "assistant" else None
        if isinstance(response_id, str) and response_id:
            return stored[place] if _is_answered(stored, place) else None
    return None


def _is_answered(messages: list[NormalMessage], place: int) -> bool:
    """True if what follows answers the calls made at that place, and no earlier ones."""
    later = messages[place:]
    results = {result.call_id for message in later for result in message.results}
    made = {call["id"] for message in later for call in message.calls}
    return {call["id"] for call in messages[place].calls} <= results <= made
