"""Anthropic's Messages API on loopback: it refuses what the vendor refuses, and answers as the vendor does.

with AnthropicServer() as server:
    server.script(MESSAGES, failure(429, "slow down", {"retry-after": "2"}), reply(text("Hello")))
    ...  # a client with server.key talks to server.url
    assert server.bodies[0]["system"] == ...
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vendor_server import Answer, Outcome, Request, VendorServer, json_answer, sse_answer

MESSAGES = "POST /v1/messages"
MODELS = "GET /v1/models"

Block = dict[str, Any]
Event = tuple[str, dict[str, Any]]

_TYPE_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FIELDS = frozenset(
    {
        *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "stop_sequences", "metadata"),
        *("temperature", "top_p", "top_k", "thinking", "output_config"),
        *("service_tier", "container", "context_management"),
    }
)
_KEYS = {  # of blocks, beside their type
    "text": {"text", "citations", "cache_control"},
    "image": {"source", "cache_control"},
    "document": {"source", "title", "context", "citations", "cache_control"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller", "cache_control"},
    "server_tool_use": {"id", "name", "input", "caller", "cache_control"},
    "web_search_tool_result": {"tool_use_id", "content", "caller", "cache_control"},
}
_REQUIRED: dict[str, dict[str, Any]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "tool_result": {"tool_use_id": str, "content": str | list},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
_BY_ROLE = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": set(_KEYS) - {"image", "document", "tool_result"},
}
_IMAGE_TYPES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_WITHOUT_SAMPLING = re.compile(r"fable|mythos|opus-4-[789]|opus-5|sonnet-5")
_INTERLEAVED = "interleaved-thinking-2025-05-14"
_MOST_MARKERS = 4
_FRAGMENT = 5  # characters of text in one event of a stream


# --- what a test scripts


def text(words: str, **extra: Any) -> Block:
    return {"type": "text", "text": words, **extra}


def thinking(words: str, signature: str = "sig-1") -> Block:
    return {"type": "thinking", "thinking": words, "signature": signature}


def redacted(data: str) -> Block:
    return {"type": "redacted_thinking", "data": data}


def tool_use(call_id: str, name: str, arguments: dict[str, Any] | None = None) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}}


def reply(
    *blocks: Block, stop_reason: str | None = None, usage: Mapping[str, Any] | None = None, **options: Any
) -> Callable[[Request], Answer]:
    """Answer with these blocks, streamed if the request says so.

    `options` are those of `sse_answer`, and further fields of the message.
    """
    framing = {name: options.pop(name) for name in list(options) if name in _FRAMING}
    has_call = any(block["type"] == "tool_use" for block in blocks)

    def answer(request: Request) -> Answer:
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": request.body["model"],
            "content": list(blocks),
            "stop_reason": stop_reason or ("tool_use" if has_call else "end_turn"),
            "stop_sequence": None,
            "usage": {**_USAGE, **(usage or {})},
            **options,
        }
        if not request.body.get("stream"):
            return json_answer(message, delay=framing.get("delay", 0.0))
        return sse_answer(stream_of(message), **framing)

    return answer


_FRAMING = ("headers", "delay", "cut_after", "hang_after", "newline", "comments", "piece_bytes")
_USAGE = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 89,
    "service_tier": "standard",
}


def failure(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **error: Any) -> Answer:
    """Refuse with a status, in the form that the vendor gives its errors."""
    return json_answer(
        error_body(error.pop("kind", _TYPE_BY_STATUS.get(status, "api_error")), message, **error), status, headers
    )


def error_body(kind: str, message: str, **error: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **error}, "request_id": "req_1"}


def failing_stream(kind: str, message: str, *blocks: Block, headers: Mapping[str, str] | None = None) -> Answer:
    """Begin a stream with these blocks, and end it with an error event."""
    message_events = stream_of({"model": "m", "content": list(blocks), "usage": _USAGE})
    begun = [event for event in message_events if event[0] not in ("message_delta", "message_stop")]
    return sse_answer([*begun, ("error", error_body(kind, message))], headers=headers)


def stream_of(message: Mapping[str, Any]) -> list[Event]:
    """Return the events that stream a message."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    end = {name: message.get(name) for name in ("stop_reason", "stop_sequence", "stop_details") if name in message}
    events: list[Event] = [("message_start", {"message": start}), ("ping", {})]
    for index, block in enumerate(message["content"]):
        events += ((name, {"index": index, **data}) for name, data in _block_events(block))
    events += [
        ("message_delta", {"delta": end, "usage": {"output_tokens": usage["output_tokens"]}}),
        ("message_stop", {}),
    ]
    return [(name, {"type": name, **data}) for name, data in events]


def _block_events(block: Block) -> Iterator[Event]:
    deltas: list[dict[str, Any]] = []
    match block["type"]:
        case "text":
            opened = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in _fragments(block["text"])]
            for citation in opened.pop("citations", ()):
                deltas.append({"type": "citations_delta", "citation": citation})
        case "thinking":
            opened = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": part} for part in _fragments(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use" | "server_tool_use":
            opened = {**block, "input": {}}
            given = block["input"]
            raw = given if isinstance(given, str) else json.dumps(given) if given else ""
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *_fragments(raw))]
        case _:
            opened = block
    yield "content_block_start", {"content_block": opened}
    yield from (("content_block_delta", {"delta": delta}) for delta in deltas)
    yield "content_block_stop", {}


def _fragments(words: str) -> list[str]:
    return [words[start : start + _FRAGMENT] for start in range(0, len(words), _FRAGMENT)]


# --- the server


class AnthropicServer(VendorServer):
    """Answers `reply(text("Hello"))` when nothing else is scripted; `always` changes that."""

    key = "sk-ant-loopback-0123456789"

    def __init__(self) -> None:
        super().__init__()
        self.always: Outcome = reply(text("Hello"))
        self.models: list[dict[str, Any]] = [model_entry("claude-sonnet-5", "Claude Sonnet 5")]
        self.page_size = 1000

    @property
    def bodies(self) -> list[Any]:
        """Return what was asked of the model, also what was refused."""
        return [request.body for request in self.asked(MESSAGES)]

    def common_headers(self, request: Request) -> Mapping[str, str]:
        return {
            "request-id": "req_1",
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:00Z",
            "anthropic-ratelimit-output-tokens-remaining": "8000",
        }

    def refusal(self, request: Request) -> Answer | None:
        offered = (request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer "))
        if self.key not in offered:
            return failure(401, "invalid x-api-key")
        if "anthropic-version" not in request.headers:
            return failure(400, "anthropic-version: header is required")
        if request.endpoint != MESSAGES:
            return None
        problem = next(_problems(request.body, request.headers.get("anthropic-beta", "")), None)
        return None if problem is None else failure(400, problem)

    def answer(self, request: Request) -> Answer:
        if request.endpoint == MESSAGES:
            return self.always if isinstance(self.always, Answer) else self.always(request)
        if request.endpoint == MODELS:
            return json_answer(self._page(request.query))
        found = [entry for entry in self.models if request.endpoint == f"{MODELS}/{entry['id']}"]
        return json_answer(found[0]) if found else failure(404, f"not found: {request.path}")

    def _page(self, query: Mapping[str, str]) -> dict[str, Any]:
        ids = [entry["id"] for entry in self.models]
        first = ids.index(query["after_id"]) + 1 if "after_id" in query else 0
        page = self.models[first : first + min(int(query.get("limit", "20")), self.page_size)]
        return {
            "data": page,
            "has_more": first + len(page) < len(self.models),
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
        }


def model_entry(model: str, display_name: str, **extra: Any) -> dict[str, Any]:
    return {"type": "model", "id": model, "display_name": display_name, "created_at": "2026-01-01T00:00:00Z", **extra}


# --- what the vendor refuses


def _problems(body: Any, betas: str) -> Iterator[str]:
    """Yield what the vendor would say about a request, most important first."""
    for name in sorted(set(body) - _FIELDS):
        yield f"{name}: Extra inputs are not permitted"
    for name in ("model", "max_tokens", "messages"):
        if not body.get(name):
            yield f"{name}: Field required"
    if body["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    yield from _problems_of_messages(body["messages"])
    yield from _problems_of_tools(body.get("tools", []), body.get("tool_choice"))
    yield from _problems_of_thinking(body, betas)
    yield from _problems_of_markers(body)
    for block in body.get("system") or []:
        if not block["text"].strip():
            yield "system: text content blocks must be non-empty"
    if _WITHOUT_SAMPLING.search(body["model"]):
        yield from (f"{name} is not supported by {body['model']}" for name in ("temperature", "top_p") if name in body)


def _problems_of_messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "messages: first message must use the user role"
    for place, message in enumerate(messages):
        where = f"messages.{place}"
        yield from (f"{where}.{key}: Extra inputs are not permitted" for key in set(message) - {"role", "content"})
        if message["role"] not in _BY_ROLE:
            yield f"{where}.role: Input should be 'user' or 'assistant'"
        if not message["content"]:
            yield f"{where}: all messages must have non-empty content"
        for number, block in enumerate(_blocks(message)):
            yield from _problems_of_block(block, message["role"], f"{where}.content.{number}")
    yield from _problems_of_calls(messages)


def _problems_of_calls(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Yield where a call is not answered, once and in the next message, or where an id comes again."""
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate([*messages, {"role": "user", "content": ""}]):
        where, blocks = f"messages.{place}", _blocks(message)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        yield from (f"{where}: unexpected `tool_use_id` found: {one}" for one in results if one not in waiting)
        if missing := [one for one in waiting if one not in results]:
            yield f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
        if len(results) != len(set(results)):
            yield f"{where}: each tool_use must have a single result"
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield f"{where}: `tool_result` blocks must come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(waiting) != len(set(waiting)) or seen & set(waiting):
            yield f"{where}: `tool_use` ids must be unique: {waiting}"
        seen.update(waiting)


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    content = message["content"]
    return [text(content)] if isinstance(content, str) else content


def _problems_of_block(block: Block, role: str, where: str) -> Iterator[str]:
    kind = block["type"]
    if kind not in _BY_ROLE[role]:
        yield f"{where}.type: {kind!r} is not allowed in a message of {role}"
        return
    yield from (f"{where}.{kind}.{key}: Extra inputs are not permitted" for key in set(block) - _KEYS[kind] - {"type"})
    for key, expected in _REQUIRED.get(kind, {}).items():
        if not isinstance(block.get(key), expected):
            yield f"{where}.{kind}.{key}: Field required"
            return
    if kind == "text" and not block["text"].strip():
        yield f"{where}: text content blocks must contain non-whitespace text"
    if kind == "tool_use" and not (_TOOL_NAME.fullmatch(block["name"]) and _CALL_ID.fullmatch(block["id"])):
        yield f"{where}.tool_use: id and name should match the pattern"
    if kind == "image":
        yield from _problems_of_image(block["source"], where)
    if kind == "tool_result" and isinstance(block["content"], list):
        for number, inner in enumerate(block["content"]):
            yield from _problems_of_block(inner, "user", f"{where}.tool_result.content.{number}")


def _problems_of_image(source: Any, where: str) -> Iterator[str]:
    match source:
        case {"type": "base64", "media_type": media_type, "data": str()} if media_type in _IMAGE_TYPES:
            pass
        case {"type": "url", "url": str() as url} if url.startswith(("http://", "https://")):
            pass
        case {"type": "file", "file_id": str()}:
            pass
        case _:
            yield f"{where}.image.source: Input should be a valid image source"


def _problems_of_tools(tools: list[dict[str, Any]], choice: Any) -> Iterator[str]:
    for place, tool in enumerate(tools):
        if not _TOOL_NAME.fullmatch(tool.get("name", "")):
            yield f"tools.{place}.custom.name: String should match pattern"
        if tool.get("type", "custom") != "custom":
            continue
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{place}.custom.input_schema.type: Field required"
        for key in set(tool) - {"type", "name", "description", "input_schema", "strict", "cache_control"}:
            yield f"tools.{place}.custom.{key}: Extra inputs are not permitted"
    if choice is not None:
        if not tools:
            yield "tool_choice may only be specified while providing tools"
        if choice.get("type") not in ("auto", "any", "tool", "none"):
            yield "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'"
        if choice.get("type") == "tool" and choice.get("name") not in [tool["name"] for tool in tools]:
            yield f"tool_choice: tool {choice.get('name')!r} not found"


def _problems_of_thinking(body: dict[str, Any], betas: str) -> Iterator[str]:
    thinks = body.get("thinking") or {}
    if thinks.get("type") not in (None, "adaptive", "enabled", "disabled"):
        yield "thinking.type: Input should be 'adaptive', 'enabled' or 'disabled'"
    if thinks.get("type") != "enabled":
        return
    budget, is_interleaved = thinks.get("budget_tokens", 0), _INTERLEAVED in betas
    if budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    if budget >= body["max_tokens"] and not is_interleaved:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    if body.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled"
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use"


def _problems_of_markers(body: dict[str, Any]) -> Iterator[str]:
    marked = list(markers(body))
    if len(marked) > _MOST_MARKERS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    for where in marked:
        if "thinking" in where:
            yield f"{where}: cache_control is not permitted on thinking blocks"


def markers(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a request has cache markers, like `messages.2.content.0.text`."""
    regions: Iterable[tuple[str, Any]] = [
        ("tools", body.get("tools")),
        ("system", body.get("system")),
        *((f"messages.{place}.content", message["content"]) for place, message in enumerate(body["messages"])),
    ]
    for region, blocks in regions:
        for number, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if "cache_control" in block:
                yield f"{region}.{number}.{block.get('type', 'custom')}"
