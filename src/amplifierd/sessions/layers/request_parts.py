"""Records every provider request as parts with their origins, and every response by its hash.

A request is an event `request:stored`. Its messages are those of an earlier one, `base`, up to the first `keep`, and
then those of `add`: a long conversation is not written again for every call. Messages of the transcript are referred
to, everything else is stored once, under its hash. A response is an event `response:stored`; its content is found in
the transcript.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest, ChatResponse
from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import RESULT_ROLES, field_of
from amplifier_kit.messages.stored_messages import estimate_message
from amplifier_kit.providers.messages import IdentityCache
from amplifier_kit.redaction import scrub
from amplifier_system.surroundings import new_token
from amplifierd.sessions.conversation.message_digest import (
    MESSAGE,
    FindInjector,
    Origin,
    TranscriptIndex,
    canonical_json,
    canonical_message,
    digest,
    injection,
    message_digest,
    origin_of,
    shared_prefix,
)

from .calls import CallLayer, ProviderCall, ProviderStep

# One message of a provider request, as it is stored: where it comes from, and how its text is had again.


Scrub = Callable[[Any], Any]
"""Returns a value without the secrets in it."""

_SEED_CHARACTERS = 32
_MOST_ADDED_CHARACTERS = 4000


def scrub_secrets(value: Any) -> Any:
    """Return a value without what looks like a secret; addresses and numbers of people stay."""
    return scrub(value, rules=("secrets",))


@dataclass(frozen=True, slots=True)
class RequestPart:
    """A message of a request.

    `hash` is that of the message as it was sent. A message of the transcript is referred to by `message_id`; with
    `changed`, its text was sent in another form: `before`, the first `kept` characters, `after`. Anything else is kept
    without secrets under `stored`, the hash of what is kept.
    """

    hash: str
    role: str
    origin: Origin
    tokens: int
    message_id: str | None = None
    changed: Mapping[str, Any] | None = field(default=None, hash=False)
    stored: str | None = None

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"hash": self.hash, "role": self.role, "tokens": self.tokens}
        if self.origin != MESSAGE:
            plain["origin"] = self.origin.to_json()
        for name, value in (("message", self.message_id), ("changed", self.changed), ("stored", self.stored)):
            if value is not None:
                plain[name] = value
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RequestPart:
        origin = Origin.from_json(value["origin"]) if "origin" in value else MESSAGE
        return cls(
            str(value.get("hash")),
            str(value.get("role")),
            origin,
            int(value.get("tokens") or 0),
            value.get("message"),
            value.get("changed"),
            value.get("stored"),
        )


class PartMaker:
    """Makes the parts of one session's requests; `unsaved` is what has to be stored for them."""

    def __init__(self, transcript: TranscriptIndex, scrubbed: Scrub, find_injector: FindInjector) -> None:
        self._transcript, self._scrub, self._find_injector = transcript, scrubbed, find_injector
        self.unsaved: dict[str, bytes] = {}

    def make(self, message: Any) -> RequestPart:
        canonical = canonical_message(message)
        as_sent = digest(canonical_json(canonical))
        role, tokens = canonical["role"], estimate_message(canonical)
        given = field_of(message, "metadata")
        metadata = given if isinstance(given, Mapping) else {}
        content = canonical["content"]
        text = content if isinstance(content, str) else ""
        if known := self._transcript.find(as_sent):
            is_injected = metadata.get("source") == "hook"
            origin = injection(text, metadata, self._find_injector) if is_injected else MESSAGE
            return RequestPart(as_sent, role, origin, tokens, str(known["id"]))
        if role in RESULT_ROLES:
            return self._changed_result(canonical, as_sent, tokens)
        origin = origin_of(role, text, metadata, self._find_injector)
        return RequestPart(as_sent, role, origin, tokens, stored=self.keep(canonical))

    def keep(self, value: Any) -> str:
        """Have a value stored without its secrets; returns the hash under which it can be read."""
        data = canonical_json(self._scrub(value))
        name = digest(data)
        self.unsaved[name] = data
        return name

    def _changed_result(self, canonical: Mapping[str, Any], as_sent: str, tokens: int) -> RequestPart:
        """Describe a tool result that differs from the transcript's; what a tool said is never copied."""
        role, original = canonical["role"], self._transcript.find_result(str(canonical.get("tool_call_id")))
        if original is None:
            return RequestPart(as_sent, role, MESSAGE, tokens)
        changed = _difference(original.get("content"), canonical["content"])
        added = str(changed.get("after", "")).removeprefix("\n\n")
        is_injected = changed.get("before") == "" and self._find_injector(added) is not None
        origin = injection(added, {}, self._find_injector) if is_injected else Origin("compaction")
        return RequestPart(as_sent, role, origin, tokens, str(original["id"]), self._scrub(changed))


def _difference(original: object, sent: object) -> dict[str, Any]:
    """Say how a text was made of another: `before + original[:kept] + after`; nothing when it was made otherwise."""
    if not isinstance(original, str) or not isinstance(sent, str) or not original:
        return {}
    start = sent.find(original[:_SEED_CHARACTERS])
    if start < 0:
        return {}
    kept = _common_prefix(original, sent[start:])
    before, after = sent[:start], sent[start + kept :]
    if len(before) + len(after) > _MOST_ADDED_CHARACTERS:
        return {}
    return {"before": before, "kept": kept, "after": after}


def _common_prefix(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


REQUEST_STORED = "request:stored"
RESPONSE_STORED = "response:stored"

AppendEvent = Callable[..., Awaitable[Any]]
PutParts = Callable[[Mapping[str, bytes]], Awaitable[None]]

_NOT_PARAMETERS = frozenset({"messages", "tools", "metadata", "conversation_id"})


class RequestRecorder(CallLayer):
    """Stores what one session sends to its providers and what comes back.

    `append` stores an event, `put_parts` contents under their hashes. `transcript` has to know the messages that are in
    the conversation before the provider is called: what it does not know is stored as something that was added.
    `take_back` hears of a response that could not be stored. `turn` is the number of the running turn.
    """

    def __init__(
        self,
        append: AppendEvent,
        put_parts: PutParts,
        transcript: TranscriptIndex,
        *,
        scrub: Scrub = scrub_secrets,
        find_injector: FindInjector = lambda text: None,
        take_back: Callable[[ChatResponse], None] = lambda response: None,
    ) -> None:
        self.turn = 0
        self._take_back = take_back
        self._append, self._put_parts, self._scrub = append, put_parts, scrub
        self._maker = PartMaker(transcript, scrub, find_injector)
        self._parts: IdentityCache[RequestPart] = IdentityCache()
        self._specs: list[Any] = []
        self._tools: str | None = None
        self._asked: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self._last_id: str | None = None
        self._messages: Sequence[object] = ()
        self._last: list[RequestPart] = []
        self._tokens = 0
        self._described: ChatRequest | None = None

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        request_id = f"request_{new_token()}"
        described = self._describe(request_id, call)
        if self._maker.unsaved:
            await self._put_parts(self._maker.unsaved)
            self._maker.unsaved = {}
        await self._append(REQUEST_STORED, described)
        started_s = time.perf_counter()
        try:
            response = await proceed(call)
        except Exception as error:
            await self._append(RESPONSE_STORED, {"request_id": request_id, "error": self._error(error)})
            raise
        duration_ms = round((time.perf_counter() - started_s) * 1000, 3)
        described = {**describe_response(request_id, response), "duration_ms": duration_ms}
        await self._append(RESPONSE_STORED, described, unstored=lambda: self._take_back(response))
        return response

    def describe_messages(self, request: ChatRequest) -> list[RequestPart]:
        """Return the parts of a request; a message that was in an earlier one is not looked at again."""
        messages = request.messages
        known = shared_prefix(messages, self._messages)
        return [*self._last[:known], *self._parts.get_all(messages[known:], self._maker.make)]

    def count_tokens(self, request: ChatRequest) -> int:
        """Return how many tokens the messages of a request take, by estimate."""
        if request is self._described:
            return self._tokens
        return sum([part.tokens for part in self.describe_messages(request)])

    def describe_tools(self, request: ChatRequest) -> str | None:
        """Return the hash of the tools that a request offers."""
        specs = request.tools or []
        if len(specs) != len(self._specs) or shared_prefix(specs, self._specs) != len(specs):
            offered = [spec.model_dump(mode="json", exclude_none=True) for spec in specs]
            self._tools = self._maker.keep(offered) if offered else None
            self._specs = list(specs)
        return self._tools

    def _describe(self, request_id: str, call: ProviderCall) -> dict[str, Any]:
        request = call.request
        parts = self.describe_messages(request)
        keep = _common(parts, self._last)
        before = self._tokens if keep == len(self._last) else sum([part.tokens for part in parts[:keep]])
        self._tokens, self._described = before + sum([part.tokens for part in parts[keep:]]), request
        described = {
            "request_id": request_id,
            "turn": self.turn,
            "provider": call.name,
            "model": request.model or call.options.get("model") or getattr(call.provider, "default_model", None),
            "base": self._last_id if keep else None,
            "keep": keep,
            "add": [part.to_json() for part in parts[keep:]],
            "messages": len(parts),
            "tokens": self._tokens,
            "tools": self.describe_tools(request),
            "parameters": self._parameters(call),
        }
        self._last_id, self._last, self._messages = request_id, parts, request.messages[:]
        return described

    def _parameters(self, call: ProviderCall) -> dict[str, Any]:
        asked = parameters_of(call)
        if asked != self._asked[0]:
            self._asked = (asked, self._scrub(asked))
        return self._asked[1]

    def _error(self, error: Exception) -> dict[str, Any]:
        retryable = getattr(error, "retryable", None)
        return {"type": type(error).__name__, "message": self._scrub(str(error)), "retryable": retryable}


def parameters_of(call: ProviderCall) -> dict[str, Any]:
    """Return what a call asks for beside messages and tools, as far as it says anything."""
    request = call.request
    given = {**vars(request), **(request.model_extra or {}), **call.options}
    asked = {key: value for key, value in given.items() if value not in (None, False) and key not in _NOT_PARAMETERS}
    return asked and {key: json_safe(value) for key, value in asked.items()}


def describe_response(request_id: str, response: ChatResponse) -> dict[str, Any]:
    """Return a response without what it says: that is in the transcript, where its hash finds it."""
    as_message = {"role": "assistant", "content": response.content, "tool_calls": response.tool_calls}
    usage = response.usage
    described: dict[str, Any] = {
        "request_id": request_id,
        "hash": message_digest(as_message),
        "finish_reason": response.finish_reason,
        "usage": None if usage is None else usage.model_dump(mode="json", exclude_none=True),
    }
    if model := getattr(response, "model", None) or (response.metadata or {}).get("model"):
        described["model"] = str(model)
    return described if response.content or response.tool_calls else {**described, "empty": True}


def _common(one: list[RequestPart], other: list[RequestPart]) -> int:
    """Return how many parts at the beginning are alike; they need not be the same objects."""
    count = shared_prefix(one, other)
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count
