"""Sending requests of one API: attempts, stream events, and fields that a server refuses."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from amplifier_core import Usage
from amplifier_core.llm_errors import InvalidRequestError, InvalidToolCallError, LLMError
from amplifier_kit.messages.stored_messages import CHARACTERS_PER_TOKEN
from amplifier_kit.providers.call import ConcurrencyGate
from amplifier_kit.providers.cost import Prices, TokenCounts
from amplifier_kit.providers.errors import VendorFailure
from amplifier_kit.providers.options import WarnOnce
from amplifier_kit.providers.response import read_rate_limits
from amplifier_kit.providers.stream import ProviderEvents, StreamEvents

from .pending_request import PendingRequest
from .settings import OpenAISettings
from .transport import OpenAIErrors, Reply, Transport, message_of, refusal_of

CHAT_FIELDS = (
    "stream_options",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "max_completion_tokens",
    "seed",
    "tool_choice",
    "strict",
)
RESPONSES_FIELDS = ("store", "include", "truncation", "reasoning", "parallel_tool_calls", "text", "strict")

_RENAMED = {"max_completion_tokens": "max_tokens"}
_REFUSING = (400, 422)
_WORDS = frozenset({"store", "include", "reasoning", "text"})
_AS_A_NAME = r"(?:['\"`]|(?:parameter|argument|field|supplied|permitted|body)s?[:.]? ?)"
_REFUSED = r"(?:support|unsupported|unknown|unexpected|unrecognized):? "
_IS_REFUSED = r" is (?:not (?:supported|allowed|permitted|available|implemented|known)|un(?:supported|known))"


class RefusedFields:
    """What one server refuses among `fields`, learned from its answers."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields
        self.names: set[str] = set()

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body without the fields that are refused, or with their other name."""
        if not self.names:
            return body
        accepted = {_RENAMED.get(key, key) if key in self.names else key: value for key, value in body.items()}
        accepted = {key: value for key, value in accepted.items() if key not in self.names}
        return _without_strict(accepted) if "strict" in self.names else accepted

    def learn(self, failure: VendorFailure | None, sent: dict[str, Any]) -> str | None:
        """Return the field of what was sent that the server has refused just now, None when it was something else."""
        if failure is None or failure.status not in _REFUSING:
            return None
        for name in self._fields:
            is_sent = _has_strict(sent) if name == "strict" else name in sent
            if is_sent and name not in self.names and _names(failure, name):
                self.names.add(name)
                return name
        return None


def _names(failure: VendorFailure, field: str) -> bool:
    """True if an answer is about a field. A name that is also a word has to stand out as a name."""
    body = failure.body if isinstance(failure.body, Mapping) else {}
    param = body.get("param")
    if isinstance(param, str) and param:
        return field in re.split(r"[.\[\]]+", param)
    name = rf"\b{field}\b"
    pattern = rf"{_AS_A_NAME}{name}|{_REFUSED}{name}|{name}{_IS_REFUSED}" if field in _WORDS else name
    return re.search(pattern, message_of(failure), re.IGNORECASE) is not None


def _has_strict(body: dict[str, Any]) -> bool:
    return any("strict" in item for item in _strict_places(body))


def _strict_places(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a body in which `strict` may stand."""
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
    formats = [(body.get("response_format") or {}).get("json_schema"), (body.get("text") or {}).get("format")]
    functions = [tool.get("function") for tool in tools]
    return [item for item in (*tools, *functions, *formats) if isinstance(item, dict)]


def _without_strict(value: Any) -> Any:
    """Return the body without `strict`; a schema's own properties of that name stay."""
    body = dict(value)
    if "tools" in body:
        body["tools"] = [_relaxed(tool) for tool in body["tools"]]
    for key in ("response_format", "text"):
        if isinstance(body.get(key), dict):
            body[key] = {name: _relaxed(item) for name, item in body[key].items()}
    return body


def _relaxed(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    relaxed = {key: value for key, value in item.items() if key != "strict"}
    if isinstance(relaxed.get("function"), dict):
        relaxed["function"] = _relaxed(relaxed["function"])
    return relaxed


logger = logging.getLogger(__name__)

T = TypeVar("T")

Collect = Callable[[Reply, StreamEvents], Awaitable[T]]

_INSTEAD = {"response_format": "the format of the answer is free", "tool_choice": "the model chooses its tools"}


@dataclass(frozen=True, slots=True)
class Link:
    """What both APIs need to reach the vendor and to be heard."""

    provider: str
    settings: OpenAISettings
    transport: Transport
    errors: OpenAIErrors
    events: ProviderEvents
    gate: ConcurrencyGate
    prices: Prices
    warn: WarnOnce
    add_cost: Callable[[Decimal | None], None]


class Sender:
    """Sends to one path; `refused` is None for a server that knows every field."""

    def __init__(self, link: Link, path: str, refused: RefusedFields | None) -> None:
        self._link = link
        self._path = path
        self._refused = refused
        self.final_statuses: frozenset[int] = frozenset()  # which no retry will change

    async def send(self, asked: PendingRequest, body: dict[str, Any], collect: Collect[T]) -> T:
        """Return what `collect` makes of the answer; every attempt has an answer of its own."""
        link = self._link
        while True:
            sent = self._accepted(asked, body)
            try:
                return await asked.call.attempt(
                    lambda: self._once(asked, sent, collect),  # noqa: B023 - awaited before the next round
                    link.settings.retry,
                    gate=link.gate,
                )
            except InvalidRequestError as error:
                field = self._refused.learn(refusal_of(error), sent) if self._refused else None
                if field is None:
                    raise
                logger.warning("%s: the server refuses %r; it is left out from now on", link.provider, field)

    async def send_twice(self, asked: PendingRequest, send: Callable[[], Awaitable[T]]) -> T:
        """Return what `send()` returns; a tool call that cannot be read is asked for once more."""
        try:
            return await send()
        except InvalidToolCallError as error:
            await asked.call.announce_retry(self._link.settings.retry, 1, 0.0, error)
        return await send()

    async def _once(self, asked: PendingRequest, body: dict[str, Any], collect: Collect[T]) -> T:
        options = asked.options
        opened = self._link.transport.open(self._path, body, model=options.model, timeout_s=options.timeout_s)
        try:
            async with (
                StreamEvents(self._link.events) as stream,
                asked.call.in_time(options.timeout_s),
                opened as reply,
            ):
                return await collect(reply, stream)
        except LLMError as error:
            error.retryable = error.retryable and error.status_code not in self.final_statuses
            raise

    def _accepted(self, asked: PendingRequest, body: dict[str, Any]) -> dict[str, Any]:
        if self._refused is None:
            return body
        for name in self._refused.names & _INSTEAD.keys() & body.keys():
            asked.shortfalls.add(name, _INSTEAD[name], "the server refuses it")
        return self._refused.apply(body)


@dataclass(frozen=True, slots=True)
class CompleteAnswer:
    """A complete answer; `fields` are added to the response, `facts` to its event, `raw` is what the vendor sent."""

    content: list[Any]
    usage: Usage
    finish_reason: str
    metadata: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    fields: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


# Tokens, money and rate limits of an answer.


_LIMIT_KINDS = ("requests", "tokens")


def responses_usage(given: Any) -> Usage:
    """Read the usage of the Responses API; nothing reported counts as zero."""
    return _read(given, "input_tokens", "output_tokens")


def chat_usage(given: Any) -> Usage:
    """Read the usage of the Chat Completions API."""
    return _read(given, "prompt_tokens", "completion_tokens")


def estimated_usage(sent_characters: int, received_characters: int) -> Usage:
    """Guess what a server used that does not say so: a token for every four characters."""
    sent, received = -(-sent_characters // CHARACTERS_PER_TOKEN), -(-received_characters // CHARACTERS_PER_TOKEN)
    return Usage.model_validate(
        {"input_tokens": sent, "output_tokens": received, "total_tokens": sent + received, "estimated": True}
    )


async def priced(usage: Usage, prices: Prices, reported: object, model: str) -> Usage:
    """Return the usage with its cost, as far as a price is known: that of the `reported` model, else of `model`."""
    name = reported if isinstance(reported, str) and reported else model
    cost = await prices.cost_of(name, TokenCounts.of(usage, has_writes_in_input=True))
    return usage.model_copy(update={"cost_usd": cost})


def rate_limits(headers: Mapping[str, str]) -> dict[str, Any] | None:
    """Read the `x-ratelimit-*` headers; None when there are none."""
    return read_rate_limits(headers, "x-ratelimit-{part}-{kind}", _LIMIT_KINDS) or None


def _read(given: Any, input_name: str, output_name: str) -> Usage:
    reported = given if isinstance(given, Mapping) else {}
    sent, received = _number(reported.get(input_name)) or 0, _number(reported.get(output_name)) or 0
    details = [reported.get(f"{name}_details") for name in (input_name, output_name)]
    details_in, details_out = (given if isinstance(given, Mapping) else {} for given in details)
    return Usage(
        input_tokens=sent,
        output_tokens=received,
        total_tokens=sent + received,
        reasoning_tokens=_number(details_out.get("reasoning_tokens")),
        cache_read_tokens=_number(details_in.get("cached_tokens")),
        cache_write_tokens=_number(details_in.get("cache_write_tokens")),
    )


def _number(given: Any) -> int | None:
    try:
        return None if given is None else int(given)
    except (TypeError, ValueError):
        return None
