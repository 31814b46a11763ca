"""Replaying: calls are answered from a recording, as long as they are the calls that were recorded."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, LLMError
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_kit.providers.events import ProviderEvents
from amplifier_kit.providers.response import ProviderResponse

from .canonical import canonical_request, first_difference, request_hash
from .faults import CLASSES
from .script_file import unusable

_DERIVED = frozenset({"content_blocks", "text"})


class RecordedCall:
    """One line of a recording."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.number: int = line["n"]
        self.request: dict[str, Any] = line["request"]
        self.request_hash: str = line["request_hash"]
        self.events: list[tuple[str, dict[str, Any]]] = [(event, payload) for event, payload in line["events"]]
        self.response: dict[str, Any] = line["response"]
        self.error: dict[str, Any] | None = None if "content" in self.response else self.response["error"]
        if self.error is None:
            _read_response(self.response)

    def check(self, request: ChatRequest) -> None:
        """Compare a request with the recorded one; raises `InvalidRequestError` that names the first difference."""
        given = canonical_request(request)
        if request_hash(given) == self.request_hash:
            return
        if difference := first_difference(self.request, given):
            path, recorded, asked = difference
            raise InvalidRequestError(
                f"the request differs from the recording (n: {self.number}) at {path}: "
                f"recorded {recorded!r}, given {asked!r}",
                provider="mock",
            )

    async def emit_events(self, events: ProviderEvents) -> None:
        """Emit the recorded stream once more, each attempt under a new `request_id`."""
        fresh: dict[Any, str] = {}
        for event, payload in self.events:
            request_id = fresh.setdefault(payload.get("request_id"), str(uuid.uuid4()))
            await events.emit(event, {**payload, "request_id": request_id})

    def answer(self) -> ProviderResponse:
        """Return the recorded response, or raise the recorded error as its kernel class."""
        if self.error is not None:
            raise CLASSES.get(self.error["type"], LLMError)(
                self.error["message"],
                provider="mock",
                status_code=self.error.get("status_code"),
                retryable=self.error.get("retryable"),
                retry_after=self.error.get("retry_after"),
            )
        return _read_response(self.response)


class Replay:
    """A recording, read at the first call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: dict[int, RecordedCall] | None = None
        self._reading = asyncio.Lock()

    async def call(self, number: int) -> RecordedCall:
        """Return what was recorded for a call, counted from 1."""
        async with self._reading:
            if self._calls is None:
                self._calls = await asyncio.to_thread(_load, self._path)
        if number not in self._calls:
            recorded = len(self._calls)
            raise InvalidRequestError(
                f"call {number} is not in the recording {self._path}, which holds {recorded} calls", provider="mock"
            )
        return self._calls[number]


def _load(path: Path) -> dict[int, RecordedCall]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        raise unusable(path, exc.strerror or str(exc)) from exc
    calls: dict[int, RecordedCall] = {}
    for place, text in enumerate(lines, start=1):
        try:
            call = RecordedCall(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise unusable(path, f"not a recorded call ({type(exc).__name__}: {exc})", line=place) from exc
        calls[call.number] = call
    return calls


def _read_response(data: dict[str, Any]) -> ProviderResponse:
    recorded = ChatResponse.model_validate({key: value for key, value in data.items() if key not in _DERIVED})
    fields = {name: getattr(recorded, name) for name in ChatResponse.model_fields if name != "content"}
    return ProviderResponse.of(recorded.content, **fields, **(recorded.model_extra or {}))
