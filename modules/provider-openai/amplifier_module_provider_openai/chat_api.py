"""A call through the Chat Completions API."""

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from amplifier_core import Usage
from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_kit.providers.messages import IdentityCache, NormalMessage, NormalResult
from amplifier_kit.providers.options import JsonSchema, WarnOnce, wanted_format, with_extras
from amplifier_kit.providers.stream import StreamEvents

from . import tools
from .conversation import ConversationConverter, Item, WireForm, WireMessage, parse_arguments
from .pending_request import PendingRequest, Prepared, note_lost, output_cap, resolve_reasoning
from .sender import (
    CHAT_FIELDS,
    CompleteAnswer,
    Link,
    RefusedFields,
    Sender,
    chat_usage,
    estimated_usage,
    priced,
    rate_limits,
)
from .settings import OpenAISettings
from .tools import OfferedTool, arguments_text, chosen_tool, offered_tool
from .transport import Reply

Fragment = tuple[Literal["thinking", "text"], str]

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkTags:
    """Sorts fragments of an answer as they come; what may be half a tag is held back until it is known."""

    def __init__(self, *, is_on: bool = True) -> None:
        self._state: Literal["before", "opened", "thinking", "after", "text"] = "before" if is_on else "text"
        self._held = ""

    def feed(self, fragment: str) -> Iterator[Fragment]:
        """Yield what is certain now."""
        self._held += fragment
        if self._state == "before":
            self._begin()
        if self._state == "opened":
            self._skip_to("thinking")
        if self._state == "thinking":
            yield from self._think()
        if self._state == "after":
            self._skip_to("text")
        if self._state == "text":
            yield from self._take("text", len(self._held))

    def flush(self) -> Iterator[Fragment]:
        """Yield what is left at the end."""
        yield from self._take("thinking" if self._state == "thinking" else "text", len(self._held))

    def _begin(self) -> None:
        start = self._held.lstrip()
        if start.startswith(_OPEN):
            self._held = start[len(_OPEN) :]
            self._state = "opened"
        elif not _OPEN.startswith(start):
            self._state = "text"

    def _skip_to(self, state: Literal["thinking", "text"]) -> None:
        """Leave the white space after a tag out."""
        self._held = self._held.lstrip()
        if self._held:
            self._state = state

    def _think(self) -> Iterator[Fragment]:
        end = self._held.find(_CLOSE)
        if end >= 0:
            yield from self._take("thinking", end)
            self._held = self._held[len(_CLOSE) :]
            self._state = "after"
            return
        half = next((n for n in range(len(_CLOSE) - 1, 0, -1) if self._held.endswith(_CLOSE[:n])), 0)
        yield from self._take("thinking", len(self._held) - half)

    def _take(self, kind: Literal["thinking", "text"], length: int) -> Iterator[Fragment]:
        taken, self._held = self._held[:length], self._held[length:]
        if taken:
            yield kind, taken


# The answer of the Chat Completions API, streamed or not, put together from its pieces.


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


_Collected = tuple[list[Any], ChatAnswer, Any, dict[str, str]]


class ChatApi:
    """Talks to `/chat/completions`."""

    name = "chat"

    def __init__(self, link: Link) -> None:
        self._link = link
        self._builder = RequestBuilder(link.settings, link.warn)
        self._sender = Sender(link, "/chat/completions", RefusedFields(CHAT_FIELDS))

    def build(self, asked: PendingRequest) -> Prepared:
        """Return the request for a call."""
        return self._builder.build(asked)

    async def complete(self, asked: PendingRequest, request: Prepared) -> CompleteAnswer:
        """Return the answer."""
        link, model = self._link, asked.options.model

        async def collect(reply: Reply, stream: StreamEvents) -> _Collected:
            answer, raw = await self._read(reply, stream, model)
            try:
                content = answer.content(provider=link.provider, model=model)
            except Exception:
                link.add_cost((await self._usage(answer, request.body, model)).cost_usd)
                raise
            return content, answer, raw, reply.headers

        async def send() -> CompleteAnswer:
            content, answer, raw, headers = await self._sender.send(asked, request.body, collect)
            has_calls = any(block.type == "tool_call" for block in content)
            return CompleteAnswer(
                content=content,
                usage=await self._usage(answer, request.body, model),
                finish_reason=answer.finish_reason or ("tool_calls" if has_calls else "stop"),
                raw=raw,
                facts={"rate_limits": rate_limits(headers)},
            )

        return await self._sender.send_twice(asked, send)

    async def _read(self, reply: Reply, stream: StreamEvents, model: str) -> tuple[ChatAnswer, Any]:
        answer = ChatAnswer(ThinkTags(is_on=self._link.settings.parse_think_tags))
        if not reply.is_stream:
            document = await reply.document()
            answer.add_chunk(document)
            answer.end()
            return answer, document
        chunks: list[dict[str, Any]] = []
        async for chunk in reply:
            if self._link.settings.raw:
                chunks.append(chunk)
            fragments, calls = answer.add_chunk(chunk)
            await _publish(stream, fragments, calls)
        await _publish(stream, answer.end(), [])
        if answer.finish_reason is None and not reply.is_done:
            raise self._link.errors.broke_off("the stream ended without a finish_reason", model=model)
        return answer, chunks

    async def _usage(self, answer: ChatAnswer, body: dict[str, Any], model: str) -> Usage:
        if answer.usage is None:
            return estimated_usage(len(arguments_text(body["messages"])), answer.characters)
        return await priced(chat_usage(answer.usage), self._link.prices, answer.model, model)


async def _publish(stream: StreamEvents, fragments: list[Fragment], calls: list[CallPieces]) -> None:
    for kind, text in fragments:
        await stream.feed(kind, text)
    for call in calls:
        call.is_announced = True
        await stream.call(call.name)


# Messages in the form of the Chat Completions API.


_LONGEST_ID = 40


class MessageConverter:
    """Converts messages, each once."""

    def __init__(self) -> None:
        self._form = ChatForm()
        self._converter = ConversationConverter(self._form)

    def convert(self, messages: Sequence[NormalMessage], *, has_vision: bool) -> tuple[list[Item], frozenset[str]]:
        """Return the messages to send, and the kinds of blocks that got lost on the way."""
        conversation = self._converter.convert(messages, has_vision=has_vision)
        said: list[Item] = []
        images: list[Item] = []
        for message in conversation.said:
            if message.items and message.items[0]["role"] != "tool":
                self._add_images(said, images)
            said += message.items
            images += message.images
        self._add_images(said, images)
        instructions = conversation.instructions
        first: list[Item] = [{"role": "system", "content": instructions}] if instructions else []
        return first + conversation.developer + said, conversation.lost

    def _add_images(self, said: list[Item], images: list[Item]) -> None:
        """Add the images of the results before, now that all of the calls are answered."""
        if images:
            said.append(self._form.user([self._form.text_part("Images of the tool results:"), *images]))
            images.clear()


class ChatForm(WireForm):
    """The form of the Chat Completions API."""

    def text_part(self, text: str) -> Item:
        return {"type": "text", "text": text}

    def image_part(self, url: str) -> Item:
        return {"type": "image_url", "image_url": {"url": url}}

    def user(self, parts: list[Item]) -> Item:
        content: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
        return {"role": "user", "content": content}

    def assistant(self, message: NormalMessage) -> Iterable[Item]:
        calls = [
            {
                "id": tools.call_id(call["id"], _LONGEST_ID),
                "type": "function",
                "function": {"name": tools.tool_name(call["name"]), "arguments": tools.arguments_text(call["input"])},
            }
            for call in message.calls
        ]
        text = message.text
        if not text and not calls:
            return ()
        said: Item = {"role": "assistant", "content": text or None}
        return ({**said, "tool_calls": calls} if calls else said,)

    def results(self, results: Sequence[NormalResult], *, has_vision: bool) -> WireMessage:
        messages: list[Item] = []
        images: list[Item] = []
        lost: frozenset[str] = frozenset()
        for result in results:
            parts, lost_here = self.parts(result.images, has_vision=has_vision)
            lost |= lost_here
            texts = [result.text, *(part["text"] for part in parts if part["type"] == "text")]
            images += [part for part in parts if part["type"] != "text"]
            call_id = tools.call_id(result.call_id, _LONGEST_ID)
            content = "\n".join(filter(None, texts))
            messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        return WireMessage(tuple(messages), tuple(images), lost)


@dataclass(slots=True)
class RequestBuilder:
    """Builds requests for one provider."""

    settings: OpenAISettings
    warn: WarnOnce
    _converter: MessageConverter = field(default_factory=MessageConverter)
    _offered: IdentityCache[OfferedTool] = field(default_factory=IdentityCache)

    def build(self, asked: PendingRequest) -> Prepared:
        """Return the request; an effort that the model does not know is an `InvalidRequestError`."""
        settings, options = self.settings, asked.options
        messages, lost = self._converter.convert(asked.messages, has_vision=asked.facts.supports_vision)
        note_lost(asked, lost)
        cap_name = "max_completion_tokens" if settings.is_default_host else "max_tokens"
        effort = (resolve_reasoning(asked, settings) or {}).get("effort")
        body = {
            "model": options.model,
            "messages": messages,
            **self._tools(asked),
            cap_name: output_cap(asked, settings),
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop": options.stop or None,
            "seed": settings.seed,
            "response_format": _response_format(asked),
            "reasoning_effort": None if effort == "none" else effort,
            "prompt_cache_key": settings.prompt_cache_key,
        }
        body = {key: value for key, value in body.items() if value is not None}
        body["stream"] = options.streams
        if options.streams:
            body["stream_options"] = {"include_usage": True}
        return Prepared(with_extras(body, settings.extra_request_params, self.warn))

    def _tools(self, asked: PendingRequest) -> dict[str, Any]:
        tools: list[dict[str, Any]] = []
        for offered in self._offered.get_all(asked.tools, offered_tool):
            if offered.native:
                reason = "the Chat Completions API has no hosted tools"
                asked.shortfalls.add("hosted tools", "the model does without", reason)
            elif offered.function:
                function = {key: value for key, value in offered.function.items() if key != "strict" or value}
                tools.append({"type": "function", "function": function})
        if not tools:
            return {}
        choice = chosen_tool(asked.options.tool_choice)
        if isinstance(choice, dict) and set(choice) == {"name"}:
            choice = {"type": "function", "function": choice}
        return {"tools": tools, "tool_choice": choice, "parallel_tool_calls": self.settings.parallel_tool_calls}


def _response_format(asked: PendingRequest) -> dict[str, Any] | None:
    wanted = wanted_format(asked.request.response_format)
    if isinstance(wanted, JsonSchema):
        return {"type": "json_schema", "json_schema": wanted.to_dict()}
    return {"type": wanted} if wanted else None
