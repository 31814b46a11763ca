"""Recording: every call goes to another provider, and is written down with what it answered.

One line for each call: `{n, request_hash, request, response, events}`.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from amplifier_core import ChatRequest, LLMError
from amplifier_core.llm_errors import ConfigurationError
from amplifier_core.utils import json_safe
from amplifier_kit.files import LineFile
from amplifier_kit.mounting import find_mounted
from amplifier_kit.providers.events import STREAM_EVENTS, ProviderEvents
from amplifier_kit.tools.runs import run_to_end

from .canonical import canonical_request, canonical_text, request_hash
from .script_file import unusable

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
