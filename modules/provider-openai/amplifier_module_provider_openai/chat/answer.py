"""The answer of the Chat Completions API, streamed or not, put together from its pieces."""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_module_provider_openai.tool_arguments import parse_arguments

from .think_tags import Fragment, ThinkTags

_THINKING = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class CallPieces:
    """A tool call that is being put together."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    is_announced: bool = False

    def add(self, piece: dict[str, Any]) -> None:
        function = piece.get("function") or {}
        name, arguments = function.get("name"), function.get("arguments")
        self.id = self.id or str(piece.get("id") or "")
        if name and name != self.name:
            self.name += name
        if arguments is not None:
            self.arguments += arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


@dataclass(slots=True)
class ChatAnswer:
    """Takes in deltas, or whole messages, and tells what was new in them."""

    think_tags: ThinkTags
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    model: object = None
    _parts: list[list[str] | CallPieces] = field(default_factory=list)  # [kind, text] or a call, in order
    _by_index: dict[int, CallPieces] = field(default_factory=dict)

    def add_chunk(self, chunk: dict[str, Any]) -> tuple[list[Fragment], list[CallPieces]]:
        """Take in a chunk; returns the new text, and the calls that have got their name by it."""
        self._note(chunk)
        for choice in chunk.get("choices") or ():
            if not choice.get("index"):
                reason = choice.get("finish_reason")
                self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason
                return self._add(choice.get("delta") or choice.get("message") or {})
        return [], []

    def end(self) -> list[Fragment]:
        """Take note of the end; returns text that was held back until now."""
        return self._add_fragments(list(self.think_tags.flush()))

    @property
    def calls(self) -> list[CallPieces]:
        return [part for part in self._parts if isinstance(part, CallPieces)]

    @property
    def characters(self) -> int:
        """How much was said."""
        texts = [part.name + part.arguments if isinstance(part, CallPieces) else part[1] for part in self._parts]
        return sum(map(len, texts))

    def content(self, **details: Any) -> list[Any]:
        """Return the blocks; a call whose arguments cannot be read is left out if the answer was cut off there.

        Otherwise it is an `InvalidToolCallError`, with these `details`.
        """
        blocks: list[Any] = []
        for part in self._parts:
            if isinstance(part, CallPieces):
                blocks += self._call_block(part, details)
            elif part[0] == "thinking":
                blocks.append(ThinkingBlock(thinking=part[1], visibility="internal"))
            elif text := part[1]:
                blocks.append(TextBlock(text=text))
        return blocks

    def _add(self, delta: dict[str, Any]) -> tuple[list[Fragment], list[CallPieces]]:
        fragments: list[Fragment] = [("thinking", delta[key]) for key in _THINKING if isinstance(delta.get(key), str)]
        del fragments[1:]  # some servers send the same under both names
        if isinstance(delta.get("content"), str):
            fragments += self.think_tags.feed(delta["content"])
        if isinstance(delta.get("refusal"), str):
            fragments.append(("text", delta["refusal"]))
        fragments = self._add_fragments([fragment for fragment in fragments if fragment[1]])
        pieces = [piece for piece in delta.get("tool_calls") or () if isinstance(piece, dict)]
        touched = [self._add_call(piece) for piece in pieces]
        return fragments, [call for call in touched if call.name and not call.is_announced]

    def _add_fragments(self, fragments: list[Fragment]) -> list[Fragment]:
        for kind, text in fragments:
            last = self._parts[-1] if self._parts else None
            if isinstance(last, list) and last[0] == kind:
                last[1] += text
            else:
                self._parts.append([kind, text])
        return fragments

    def _add_call(self, piece: dict[str, Any]) -> CallPieces:
        index, call_id = piece.get("index"), piece.get("id")
        if not isinstance(index, int):
            continues = not call_id and not (piece.get("function") or {}).get("name") and self._by_index
            index = max(self._by_index) if continues else len(self.calls)
        known = self._by_index.get(index)
        if known is None or (call_id and known.id and call_id != known.id):
            known = self._by_index[index] = CallPieces()
            self._parts.append(known)
        known.add(piece)
        return known

    def _call_block(self, call: CallPieces, details: dict[str, Any]) -> list[Any]:
        try:
            arguments = parse_arguments(call.name, call.arguments, **details)
        except InvalidToolCallError:
            if self.finish_reason == "length":
                return []
            raise
        call.id = call.id or f"call_{uuid.uuid4().hex[:24]}"
        return [ToolCallBlock(id=call.id, name=call.name, input=arguments)]

    def _note(self, chunk: dict[str, Any]) -> None:
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        self.model = chunk.get("model") or self.model
