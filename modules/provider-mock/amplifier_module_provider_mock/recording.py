"""Recording: every call goes to another provider, and is written down with what it answered.

One line for each call: `{n, request_hash, request, response, events}`.
"""

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, LLMError
from amplifier_core.llm_errors import ConfigurationError, InvalidRequestError
from amplifier_core.utils import json_safe
from amplifier_kit.files import LineFile
from amplifier_kit.mounting import find_mounted
from amplifier_kit.providers.response import ProviderResponse
from amplifier_kit.providers.stream import STREAM_EVENTS, ProviderEvents
from amplifier_kit.tools.runs import run_to_end

from .faults import CLASSES
from .script import unusable

logger = logging.getLogger(__name__)

_ADDED_BY_REGISTRY = frozenset({"session_id", "parent_id", "timestamp"})
# The calls being recorded in this context. Code that emits an event inherits the context of the call it belongs to.
_recorded_calls: ContextVar[tuple[object, ...]] = ContextVar("amplifier_mock_recorded_calls", default=())


class Recorder:
    """Passes calls on to the provider mounted under `provider_name`, and appends each to a file."""

    def __init__(self, path: Path, provider_name: str, coordinator: Any, owner: object) -> None:
        self._path = path
        self._provider_name = provider_name
        self._coordinator = coordinator
        self._owner = owner
        self._events = ProviderEvents(coordinator)
        self._file: LineFile | None = None
        self._recorded_before: int | None = None
        self._opening = asyncio.Lock()

    def find_wrapped(self) -> Any:
        """Return the provider that is recorded, None when it is not mounted."""
        found = self._mounted().get(self._provider_name)
        return None if found is self._owner else found

    def wrapped(self) -> Any:
        """Return the provider that is recorded; raises `ConfigurationError` when there is none."""
        found = self.find_wrapped()
        if found is None:
            names = ", ".join(self._mounted()) or "none"
            raise ConfigurationError(
                f"no provider {self._provider_name!r} to record is mounted (mounted: {names})", provider="mock"
            )
        return found

    async def complete(self, request: ChatRequest, options: Mapping[str, Any], started: int) -> Any:
        """Return the other provider's answer, or raise its error, once it is written down.

        `started` counts this provider's calls from 1; a recording that exists is continued.
        """
        wrapped = self.wrapped()
        canonical = canonical_request(request)  # now: the provider may repair the request in place
        file = await self._open()
        number = (self._recorded_before or 0) + started
        with self._captured() as events:
            try:
                response = await wrapped.complete(request, **options)
            except Exception as exc:
                self._append(file, number, canonical, {"error": _error_data(exc)}, events)
                raise
        self._append(file, number, canonical, json_safe(response), events)
        return response

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @contextmanager
    def _captured(self) -> Iterator[list[list[Any]]]:
        """Collect the stream events of the call that runs inside, told apart from others by the context."""
        captured: list[list[Any]] = []
        call = object()

        async def keep(event: str, data: dict[str, Any]) -> None:
            if call in _recorded_calls.get():
                payload = {key: value for key, value in data.items() if key not in _ADDED_BY_REGISTRY}
                captured.append([event, json_safe(payload)])

        register = getattr(self._events.hooks, "register", None)
        with ExitStack() as undo:
            for event in STREAM_EVENTS if callable(register) else ():
                undo.callback(register(event, keep, name="provider-mock recording"))  # type: ignore[misc]
            token = _recorded_calls.set((*_recorded_calls.get(), call))
            try:
                yield captured
            finally:
                _recorded_calls.reset(token)

    def _mounted(self) -> Mapping[str, Any]:
        mounted = find_mounted(self._coordinator, "providers")
        return mounted if isinstance(mounted, Mapping) else {}

    async def _open(self) -> LineFile:
        async with self._opening:
            if self._file is not None:
                return self._file
            try:
                opening = asyncio.to_thread(_open, self._path)
                file, recorded = await run_to_end(opening, undo=lambda opened: opened[0].close())
            except OSError as exc:
                raise unusable(self._path, exc.strerror or str(exc)) from exc
            if self._recorded_before is None:
                self._recorded_before = recorded
            self._file = file
            return file

    def _append(
        self, file: LineFile, number: int, request: dict[str, Any], response: Any, events: list[list[Any]]
    ) -> None:
        line = {
            "n": number,
            "request_hash": request_hash(request),
            "request": request,
            "response": response,
            "events": events,
        }
        try:
            file.append(canonical_text(line) + "\n")
        except OSError:
            logger.exception("call %d could not be recorded in %s", number, self._path)


def _open(path: Path) -> tuple[LineFile, int]:
    """Open a recording, and return the number of the last call in it."""
    file = LineFile(path)
    with path.open(encoding="utf-8", errors="replace") as lines:
        return file, max((_number(line) for line in lines), default=0)


def _number(line: str) -> int:
    try:
        return int(json.loads(line)["n"])
    except (ValueError, TypeError, KeyError):
        return 0


def _error_data(error: Exception) -> dict[str, Any]:
    details = {name: getattr(error, name, None) for name in ("retryable", "status_code", "retry_after")}
    is_known = isinstance(error, LLMError)
    return {"type": type(error).__name__ if is_known else "LLMError", "message": str(error) or repr(error), **details}


# A request in a form in which two can be compared: what the model sees, and nothing else.


_ABSENT = "(absent)"
_SHOWN_CHARACTERS = 200


def canonical_request(request: ChatRequest) -> dict[str, Any]:
    """Return a request as JSON data, without null values and without metadata of request, messages and blocks."""
    data: dict[str, Any] = _without_nulls(json_safe(request))
    data.pop("metadata", None)
    for message in data.get("messages", []):
        message.pop("metadata", None)
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                block.pop("metadata", None)
    return data


def canonical_text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def request_hash(data: dict[str, Any]) -> str:
    """Return the hash of a canonical request."""
    return f"sha256:{hashlib.sha256(canonical_text(data).encode('utf-8', 'surrogatepass')).hexdigest()}"


def first_difference(recorded: Any, given: Any, path: str = "") -> tuple[str, str, str] | None:
    """Return where two values differ first, as key path and both values, each cut; None when they are equal."""
    if isinstance(recorded, dict) and isinstance(given, dict):
        places = [(f"{path}.{key}" if path else key, key) for key in sorted({*recorded, *given})]
        pairs = ((place, recorded.get(key, _ABSENT), given.get(key, _ABSENT)) for place, key in places)
    elif isinstance(recorded, list) and isinstance(given, list):
        length = max(len(recorded), len(given))
        padded = [[*values, *[_ABSENT] * (length - len(values))] for values in (recorded, given)]
        pairs = ((f"{path}[{index}]", padded[0][index], padded[1][index]) for index in range(length))
    elif recorded == given:
        return None
    else:
        return path, _shown(recorded), _shown(given)
    found = (first_difference(one, other, place) for place, one, other in pairs)
    return next((difference for difference in found if difference), None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_text(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


# Replaying: calls are answered from a recording, as long as they are the calls that were recorded.


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
