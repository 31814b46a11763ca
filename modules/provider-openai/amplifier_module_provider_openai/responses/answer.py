"""Response objects of the Responses API in the kernel's form."""

from dataclasses import dataclass, field
from typing import Any

from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_module_provider_openai.conversation import Item
from amplifier_module_provider_openai.tool_arguments import parse_arguments

from .items import HOSTED_ITEMS, RESPONSE_ID, assistant_item, reasoning_item, without_open_reasoning

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
                    self.items.append(reasoning_item(item["id"], item["encrypted_content"], _summary(item)))
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
    text, encrypted = _summary(item), item.get("encrypted_content")
    if not text and not encrypted:
        return []
    state = [encrypted, item.get("id")]
    return [ThinkingBlock(thinking=text, signature=None, visibility="internal", content=state)]


def _summary(item: Item) -> str:
    for parts in (item.get("summary"), item.get("content")):
        text = "\n".join(part["text"] for part in parts or () if isinstance(part, dict) and part.get("text"))
        if text:
            return text
    return ""
