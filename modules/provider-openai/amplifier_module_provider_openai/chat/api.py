"""A call through the Chat Completions API."""

from typing import Any

from amplifier_core import Usage
from amplifier_kit.providers.stream import StreamEvents
from amplifier_module_provider_openai.complete_answer import CompleteAnswer
from amplifier_module_provider_openai.pending_request import PendingRequest, Prepared
from amplifier_module_provider_openai.refused_fields import CHAT_FIELDS, RefusedFields
from amplifier_module_provider_openai.sender import Link, Sender
from amplifier_module_provider_openai.tools import arguments_text
from amplifier_module_provider_openai.transport import Reply
from amplifier_module_provider_openai.usage import chat_usage, estimated_usage, priced, rate_limits

from .answer import CallPieces, ChatAnswer
from .request import RequestBuilder
from .think_tags import Fragment, ThinkTags

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

        async def collect(reply: Reply, told: StreamEvents) -> _Collected:
            answer, raw = await self._read(reply, told, model)
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
                told={"rate_limits": rate_limits(headers)},
            )

        return await self._sender.send_twice(asked, send)

    async def _read(self, reply: Reply, told: StreamEvents, model: str) -> tuple[ChatAnswer, Any]:
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
            await _tell(told, fragments, calls)
        await _tell(told, answer.end(), [])
        if answer.finish_reason is None and not reply.is_done:
            raise self._link.errors.broke_off("the stream ended without a finish_reason", model=model)
        return answer, chunks

    async def _usage(self, answer: ChatAnswer, body: dict[str, Any], model: str) -> Usage:
        if answer.usage is None:
            return estimated_usage(len(arguments_text(body["messages"])), answer.characters)
        return await priced(chat_usage(answer.usage), self._link.prices, answer.model, model)


async def _tell(told: StreamEvents, fragments: list[Fragment], calls: list[CallPieces]) -> None:
    for kind, text in fragments:
        await told.feed(kind, text)
    for call in calls:
        call.is_announced = True
        await told.call(call.name)
