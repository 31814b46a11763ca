"""JSON-RPC 2.0 between two processes, one message per line; either side may ask, and answer while it waits itself.

A call that is cancelled cancels the work on the other side (notification `cancel`). When the other side is gone, every
call that waits raises `PeerGoneError`, and every request that is being answered is cancelled.

A notification may have lines of its own: `lines` says how many of those that follow it belong to it. They are passed on
as they are, so that what is text already is neither written nor read once more.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from types import ModuleType
from typing import Any, NamedTuple

from amplifier_core import exceptions as kernel
from amplifier_core import llm_errors
from amplifier_core.exceptions import AmplifierError, describe
from amplifier_core.utils import json_safe
from amplifier_foundation import exceptions as foundation
from amplifier_system.tasks import start_task
from amplifierd import exceptions as ours
from amplifierd.exceptions import RemoteError
from amplifierd.issues import Issue
from amplifierd.problems import problem_document
from amplifierd.store.hold import Holder
from amplifierd.store.json_lines import encoded_for_others

logger = logging.getLogger(__name__)

Method = Callable[..., Awaitable[Any]]
Hear = Callable[..., None]


PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, FAILED = -32700, -32600, -32601, -32602, -32000
CANCEL = "cancel"

_LONGEST_LINE = 256 * 1024 * 1024


class PeerGoneError(ConnectionError):
    """The process on the other side is gone, or does not listen any more."""


class Notification(NamedTuple):
    """Something that the other side is told; `lines` follow it."""

    method: str
    params: Mapping[str, Any]
    lines: Sequence[bytes] = ()


class Peer(asyncio.Protocol):
    """One end of a connection. `methods` answer requests, `hears` take notifications, both by name.

    Every request is answered in a task of its own. Notifications are heard in the order in which they came, at once;
    what hears them must not take long. `at_end` is called once, when the connection is over.
    """

    def __init__(
        self,
        methods: Mapping[str, Method] | None = None,
        hears: Mapping[str, Hear] | None = None,
        *,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._methods, self._hears, self._at_end = methods or {}, hears or {}, at_end
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._begun: tuple[str, dict[str, Any]] | None = None  # a notification whose lines have not all come yet
        self._missing_lines = 0
        self._last_id = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._is_over = False

    @classmethod
    async def connect(cls, connection: socket.socket, *parts: Any, **options: Any) -> Peer:
        """Return the end of a connected stream socket, which belongs to the peer from then on."""
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_unix_connection(lambda: cls(*parts, **options), sock=connection)
        return peer

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def backlog(self) -> int:
        """How many bytes were said that the other side has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # --- asking and telling

    async def call(self, method: str, /, **params: Any) -> Any:
        """Ask the other side, and return its answer.

        Raises what the other side raised: the same exception of the library, else `RemoteError`.

        Raises:
            PeerGoneError: there is no other side any more.
        """
        if self._is_over:
            raise PeerGoneError(f"{method}: the other process is gone")
        self._last_id += 1
        request_id = self._last_id
        answer = self._asked[request_id] = asyncio.get_running_loop().create_future()
        try:
            self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            return await answer
        except asyncio.CancelledError:
            self.notify(CANCEL, id=request_id)
            raise
        finally:
            self._asked.pop(request_id, None)

    def notify(self, method: str, /, **params: Any) -> None:
        """Tell the other side; one that is gone is told nothing."""
        self.notify_all([Notification(method, params)])

    def notify_all(self, told: Iterable[Notification]) -> None:
        """Tell the other side several things in one write."""
        if self._is_over or self._transport is None:
            return
        written: list[bytes] = []
        for method, params, lines in told:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            written += (encoded_for_others({**message, "lines": len(lines)} if lines else message), *lines)
        self._transport.write(b"\n".join((*written, b"")))

    def close(self) -> None:
        """End the connection once everything that was said is sent."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(encoded_for_others(message) + b"\n")

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\n" not in data:
            if len(self._received) > _LONGEST_LINE and self._transport is not None:
                logger.error("a message of more than %d bytes ends the connection", _LONGEST_LINE)
                self._transport.abort()
            return
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        place = 0
        while place < len(lines):
            if self._begun is None:
                self._take(lines[place])
                place += 1
            else:
                place += self._take_lines_of(*self._begun, lines[place : place + self._missing_lines])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(PeerGoneError("the other process is gone"))
        for task in self._answering.values():
            task.cancel()
        self._at_end()

    # --- what comes in

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError as error:
            self._refuse(None, PARSE_ERROR, f"not JSON: {error}")
            return
        match message:
            case {"method": str(method), "id": int(request_id)}:
                self._begin_answer(request_id, method, message.get("params"))
            case {"method": str(method), "lines": int(count)} if count > 0:
                self._begun = method, {**(message.get("params") or {}), "lines": []}
                self._missing_lines = count
            case {"method": str(method)}:
                self._hear(method, message.get("params") or {})
            case {"id": int(request_id), "result": result}:
                if (asked := self._asked.get(request_id)) is not None and not asked.done():
                    asked.set_result(result)
            case {"id": int(request_id), "error": dict(described)}:
                if (asked := self._asked.get(request_id)) is not None and not asked.done():
                    asked.set_exception(error_of(described))
            case {"id": None, "error": described}:
                logger.error("the other process could not read a message: %s", described)
            case _:
                self._refuse(None, INVALID_REQUEST, "neither a request nor an answer")

    def _take_lines_of(self, method: str, params: dict[str, Any], lines: Sequence[bytes]) -> int:
        """Take lines of a notification, and hear it with the last of them; returns how many they are."""
        params["lines"] += lines
        self._missing_lines -= len(lines)
        if not self._missing_lines:
            self._begun = None
            self._hear(method, params)
        return len(lines)

    def _hear(self, method: str, params: Mapping[str, Any]) -> None:
        if method == CANCEL:
            task = self._answering.get(int(params.get("id") or 0))
            if task is not None:
                task.cancel()
            return
        hear = self._hears.get(method)
        if hear is None:
            logger.warning("the other process tells %r, which nothing here hears", method)
            return
        hear(**params)

    def _begin_answer(self, request_id: int, method: str, params: Any) -> None:
        function = self._methods.get(method)
        if function is None:
            self._refuse(request_id, METHOD_NOT_FOUND, f"there is no method {method!r}")
            return
        try:
            work = function(**(params or {}))  # which does nothing before it is awaited
        except TypeError as error:
            self._refuse(request_id, INVALID_PARAMS, f"{method}: {error}")
            return
        task = self._answering[request_id] = start_task(self._answer(request_id, work))
        task.add_done_callback(lambda done: self._answering.pop(request_id, None))

    async def _answer(self, request_id: int, work: Awaitable[Any]) -> None:
        try:
            result = await work
        except asyncio.CancelledError:
            self._refuse(request_id, FAILED, "cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told, and it is logged there or here
            described = described_error(error)
            self._reply({"id": request_id, "error": {"code": FAILED, **described}})
            return
        self._reply({"id": request_id, "result": result})

    def _refuse(self, request_id: int | None, code: int, message: str) -> None:
        self._reply({"id": request_id, "error": {"code": code, "message": message}})

    def _reply(self, answer: Mapping[str, Any]) -> None:
        if not self._is_over:
            self._send({"jsonrpc": "2.0", **answer})


# Errors on their way between processes: described as JSON here, raised as the same exception there.


def _errors_of(module: ModuleType) -> dict[str, type[Exception]]:
    found = inspect.getmembers(module, inspect.isclass)
    return {name: kind for name, kind in found if issubclass(kind, Exception) and kind is not RemoteError}


KNOWN: Mapping[str, type[Exception]] = {
    "TimeoutError": TimeoutError,
    **_errors_of(llm_errors),
    **_errors_of(kernel),
    **_errors_of(foundation),
    **_errors_of(ours),
}
"""The errors that are raised again as what they were, by the names of their classes."""


def described_error(error: BaseException) -> dict[str, Any]:
    """Return an error as the `message` and `data` of a JSON-RPC error; an unexpected one leaves its traceback here."""
    name = type(error).__name__
    if KNOWN.get(name) is not type(error) and not isinstance(error, RemoteError):
        logger.error("a request failed: %s", describe(error), exc_info=error)
    facts = {key: _plain(value) for key, value in vars(error).items() if not key.startswith("_")}
    data = {"class": name, "facts": facts, "problem": problem_document(error)}
    return {"message": describe(error), "data": data}


def error_of(described: Mapping[str, Any]) -> Exception:
    """Return the exception that was described."""
    message, data = str(described.get("message") or "it failed"), described.get("data")
    if not isinstance(data, Mapping):
        return RemoteError(message, problem=problem_document(AmplifierError(message)))
    facts, problem = dict(data.get("facts") or {}), dict(data.get("problem") or {})
    kind = KNOWN.get(str(data.get("class")))
    if kind is None:
        return RemoteError(message, problem=problem)
    error = kind.__new__(kind)
    error.args = (message,)
    vars(error).update({name: _REBUILT.get(name, _as_it_is)(value) for name, value in facts.items()})
    return error


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return json_safe(value)


def _as_it_is(value: Any) -> Any:
    return value


def _issues(value: Any) -> Any:
    return tuple(Issue(**one) if isinstance(one, dict) else one for one in value or ())


def _holder(value: Any) -> Any:
    return Holder(**value) if isinstance(value, dict) else value


_REBUILT = {"issues": _issues, "holder": _holder}
"""Facts that are values of ours, and how they are made again."""
