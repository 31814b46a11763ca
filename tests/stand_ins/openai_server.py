"""OpenAI's server on loopback: the Responses and the Chat Completions API, as strict about requests as the vendor.

What the model says is scripted once and told in the form that is asked for: through either API, streamed or not::

    with OpenAIServer() as server:
        server.say(Said(thinking="hm", text="I will look.", calls=[("call_1", "read_file", {"path": "a"})]))
        ...  # a client talks to server.base_url

What only one API can do, or no model would, is scripted as an answer: `server.script(RESPONSES, failed(429, …))`.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openai_chat import chat_answer, check_chat
from openai_responses import ResponseStore, responses_answer
from openai_schema import Problem
from vendor_server import Answer, Request, VendorServer, json_answer, sse_answer, text_answer

RESPONSES = "POST /v1/responses"
CHAT = "POST /v1/chat/completions"
MODELS = "GET /v1/models"
KEY = "sk-test-0123456789abcdef"

_LIMITS = {
    f"x-ratelimit-{part}-{kind}": value
    for kind, values in (("requests", ("500", "499", "120ms")), ("tokens", ("30000", "29000", "6m0s")))
    for part, value in zip(("limit", "remaining", "reset"), values, strict=True)
}
_TYPES = {401: "invalid_request_error", 404: "invalid_request_error", 429: "requests", 500: "server_error"}


@dataclass(frozen=True)
class Said:
    """What the model says: thinking, text or a refusal, calls as id, name and arguments (an object, or broken text).

    `cut` ends the answer by `max_output_tokens` or `content_filter`. `encrypted` is the encrypted form of the thinking,
    False for none. `stream` are keywords for `sse_answer`, for a stream that is torn, slow or cut.
    """

    text: str = ""
    thinking: str = ""
    refusal: str = ""
    calls: Iterable[tuple[str, str, Any]] = ()
    cut: str | None = None
    model: str | None = None
    usage: Mapping[str, int] | None = field(
        default_factory=lambda: {"input": 10, "output": 5, "cached": 2, "reasoning": 1}
    )
    encrypted: bool | str = True
    stream: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self) -> list[tuple[str, str, str]]:
        """Return the calls with their arguments as text."""
        return [(i, name, args if isinstance(args, str) else json.dumps(args)) for i, name, args in self.calls]


def failed(
    status: int,
    code: str | None = None,
    message: str = "It failed.",
    *,
    kind: str | None = None,
    param: str | None = None,
    **headers: str,
) -> Answer:
    """Answer with an error in the vendor's form; underscores in names of headers stand for hyphens."""
    error = {"message": message, "type": kind or _TYPES.get(status, "invalid_request_error"), "param": param}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_answer({"error": {**error, "code": code}}, status, named)


class OpenAIServer(VendorServer):
    """Serves the named APIs. `key` None asks for none; `refuses` are fields that the server says it does not know."""

    def __init__(
        self, *, key: str | None = KEY, apis: Iterable[str] = (RESPONSES, CHAT), refuses: Iterable[str] = ()
    ) -> None:
        super().__init__()
        self.key = key
        self.apis = set(apis)
        self.refuses = set(refuses)
        self.models: list[dict[str, Any]] = [{"id": "gpt-5.5", "object": "model", "created": 0, "owned_by": "openai"}]
        self.store = ResponseStore()
        self.always = Said("Hello")
        self.connection_count = 0
        self._said: deque[Said] = deque()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def say(self, *said: Said | str) -> None:
        """Queue what the model says; when the queue is empty it says what `always` is."""
        self._said.extend(Said(item) if isinstance(item, str) else item for item in said)

    def sent(self, endpoint: str | None = None) -> list[dict[str, Any]]:
        """Return the bodies that were posted."""
        return [
            request.body
            for request in self.requests
            if request.method == "POST" and endpoint in (None, request.endpoint)
        ]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        await super()._connected(reader, writer)

    def common_headers(self, request: Request) -> Mapping[str, str]:
        return {"x-request-id": f"req_{len(self.requests)}", **_LIMITS}

    def refusal(self, request: Request) -> Answer | None:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return failed(401, "invalid_api_key", "Incorrect API key provided.")
        if request.endpoint == MODELS:
            return None
        if request.endpoint not in self.apis:
            body = {"message": "Not Found", "type": "not_found_error", "code": 404}
            return json_answer({"error": body}, 404)
        try:
            self._check(request)
        except Problem as problem:
            return failed(problem.status, problem.code, problem.message, param=problem.param)
        except (LookupError, TypeError, AttributeError) as exc:  # of another type than the checks expect at that place
            return failed(400, "invalid_type", f"Invalid type in the request: {exc}")
        return None

    def _check(self, request: Request) -> None:
        try:
            body = request.body
        except ValueError as exc:
            raise Problem("We could not parse the JSON body of your request.") from exc
        if not isinstance(body, dict):
            raise Problem("Invalid type: expected an object.", "invalid_type")
        for name in sorted(self.refuses & set(_field_names(body))):
            raise Problem(f"Unrecognized request argument supplied: {name}", "unknown_parameter")
        if request.endpoint == RESPONSES:
            self.store.check(body)
        else:
            check_chat(body)

    def answer(self, request: Request) -> Answer:
        if request.endpoint == MODELS:
            return json_answer({"object": "list", "data": self.models})
        said = self._said.popleft() if self._said else self.always
        body = request.body
        if request.endpoint == RESPONSES:
            return _told(responses_answer(self.store, body, said), body, said)
        return _told(chat_answer(body, said), body, said)


def _told(rendered: tuple[dict[str, Any], list[tuple[str | None, Any]]], body: dict[str, Any], said: Said) -> Answer:
    document, events = rendered
    return sse_answer(events, **said.stream) if body.get("stream") else json_answer(document)


def _field_names(body: dict[str, Any]) -> Iterable[str]:
    yield from body
    for tool in body.get("tools") or ():
        yield from tool
        yield from tool.get("function") or ()


__all__ = [
    "CHAT",
    "KEY",
    "MODELS",
    "RESPONSES",
    "OpenAIServer",
    "Said",
    "failed",
    "text_answer",
]
