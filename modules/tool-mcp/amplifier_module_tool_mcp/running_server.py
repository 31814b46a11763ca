"""One server over the whole session: started, called, started again when it is lost, and stopped."""

import asyncio
import contextlib
import importlib
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

from amplifier_core import ToolResult
from amplifier_core.utils import json_safe
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import announce

from . import events, failures
from .connection_ending import Ending
from .definitions import ToolDefinition
from .entries import ServerSettings
from .events import PROGRESS
from .redaction import Redactor
from .results import ResultReader
from .server import McpServer, State
from .server_output import ServerOutput

if TYPE_CHECKING:
    from .connection import Connection

logger = logging.getLogger(__name__)

_MANY_BLOCKS = 500  # of an answer, beyond which it is read off the event loop

_SDK_MISSING = "tool-mcp needs the package mcp: pip install mcp"
_STEADY_S = 60.0
_JITTER = 0.25
_MOST_DOUBLINGS = 30
_ABANDON_S = 0.5


class Host(Protocol):
    """Where servers are started together and their tools are mounted."""

    async def start(self, *, eager_only: bool = False) -> None:
        """Start the servers that are idle."""
        ...

    async def offer(self, server: "RunningServer", tools: list[ToolDefinition]) -> None:
        """Have exactly these tools of the server mounted."""
        ...

    def names_of(self, server: str) -> list[str]:
        """Return the names under which its tools are mounted."""
        ...


class RunningServer(McpServer):
    """A server with a task of its own, its owner, which enters and leaves every connection to it."""

    def __init__(self, settings: ServerSettings, coordinator: Any, host: Host) -> None:
        super().__init__(settings.name)
        self.state = "idle"
        self.settings = settings
        self.host = host
        self._coordinator = coordinator
        self._output = ServerOutput(settings)
        self._owner: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._is_stopping = asyncio.Event()
        self._settled = asyncio.Event()  # it is not starting
        self._slots = asyncio.Semaphore(settings.limits.max_concurrent_calls)
        self._facts: dict[str, Any] = {}
        self._refusal: int | None = None
        self._failures = 0
        self._restarts = 0
        self._retry_at_s = 0.0
        self._ready_at_s = 0.0

    # --- what it is

    def status(self) -> dict[str, Any]:
        facts = {
            "transport": self.settings.transport,
            "pid": self._connection.pid if self._connection and self.state in ("starting", "ready") else None,
            "tools": self.host.names_of(self.name),
            "restarts": self._restarts,
        }
        status: dict[str, Any] = self.settings.redactor.data(json_safe({**super().status(), **self._facts, **facts}))
        return status

    @property
    def tool_prefix(self) -> str:
        return self.settings.limits.tool_prefix

    def requires_approval(self, tool: ToolDefinition) -> bool:
        is_exempt = self.settings.trust_annotations and tool.is_read_only
        return self.settings.limits.require_approval and not is_exempt

    def risk_level(self, tool: ToolDefinition) -> Literal["medium", "high"]:
        return "medium" if self.settings.trust_annotations and tool.is_harmless else "high"

    # --- from start to stop

    def start(self) -> None:
        """Start the server if it never was; it goes on by itself."""
        if self._owner is None and not self._is_stopping.is_set():
            self._enter("starting")
            self._owner = asyncio.create_task(self._own(), name=f"mcp-server-{self.name}")

    async def wait(self, limit_s: float) -> None:
        """Wait until a start in progress has succeeded or failed, but not forever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._settled.wait()

    async def stop(self) -> None:
        """End the server, its connection and the calls in progress; what takes too long is killed."""
        self._is_stopping.set()
        if self._connection is not None:
            self._connection.stop()
        if self._owner is not None:
            limit_s = self.settings.limits.stop_timeout_s
            done, _ = await asyncio.wait({self._owner}, timeout=limit_s)
            if not done:
                await self._abandon(self._owner, limit_s)
        if self.state != "failed":
            self._enter("stopped")

    async def _abandon(self, owner: "asyncio.Task[None]", limit_s: float) -> None:
        if self._connection is not None:
            await self._connection.kill()
        done, _ = await asyncio.wait({owner}, timeout=_ABANDON_S)
        if not done:
            logger.warning("server %s did not stop within %g s and is left alone", self.name, limit_s)

    async def _own(self) -> None:
        """Keep a connection for as long as the session lasts, or until trying again is of no use."""
        while True:
            ending = await self._live()
            retry_in_s = self._judge(ending)
            if ending.was_ready:
                payload = {"server": self.name, "reason": ending.reason, "exit_code": ending.exit_code}
                await announce(self._coordinator, events.SERVER_STOPPED, payload)
            if self.state == "stopped":
                return
            if retry_in_s is None or not ending.was_ready:
                await self._announce_failure(ending, retry_in_s)
            if retry_in_s is None or await self._is_stopped_within(retry_in_s):
                return
            self._restarts += 1
            self._enter("starting")

    async def _live(self) -> Ending:
        """Make a connection, keep it while it lasts, and return how it ended."""
        try:
            module = await asyncio.to_thread(_import_sdk)
        except ImportError:
            logger.debug("the SDK cannot be imported", exc_info=True)
            return Ending("connection_lost", error_type="ImportError", message=_SDK_MISSING, is_final=True)
        connection: Connection = module.Connection(self.settings, self._output)
        started_s = time.monotonic()
        self._connection = connection
        if self._is_stopping.is_set():
            connection.stop()

        async def on_ready(tools: list[ToolDefinition]) -> None:
            await self._become_ready(connection, tools, time.monotonic() - started_s)

        return await connection.run(on_ready, lambda tools: self.host.offer(self, tools))

    async def _become_ready(self, connection: "Connection", tools: list[ToolDefinition], took_s: float) -> None:
        self._facts = connection.facts()
        self._ready_at_s = time.monotonic()
        self._enter("ready")
        await self.host.offer(self, tools)
        info = self._facts["server_info"] or {}
        await self._announce(
            events.SERVER_STARTED,
            {
                "server": self.name,
                "transport": self.settings.transport,
                "pid": connection.pid,
                "protocol_version": self._facts["protocol_version"],
                "server_name": info.get("name"),
                "server_version": info.get("version"),
                "tool_count": len(tools),
                "duration_ms": round(took_s * 1000),
                "restarts": self._restarts,
            },
        )
        logger.info("server %s is ready with %d tools", self.name, len(tools))

    def _judge(self, ending: Ending) -> float | None:
        """Take note of an ending and return after how many seconds to try again; None is for never."""
        if self._is_stopping.is_set():
            self._enter("stopped")
            return None
        if ending.was_ready and time.monotonic() - self._ready_at_s >= _STEADY_S:
            self._failures = 0
        self._failures += 1
        self.last_error, self._refusal = ending.message, ending.status
        limits = self.settings.limits
        if ending.is_final or self._failures > limits.max_restarts:
            self._enter("failed")
            return None
        doubled = limits.restart_delay_s * 2.0 ** min(self._failures - 1, _MOST_DOUBLINGS)
        retry_in_s = min(doubled, limits.restart_max_delay_s) * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._retry_at_s = time.monotonic() + retry_in_s
        self._enter("backoff")
        return retry_in_s

    async def _announce_failure(self, ending: Ending, retry_in_s: float | None) -> None:
        tail = self._output.tail()
        if retry_in_s is None:
            last_words = "".join(f"\n  {line}" for line in tail)
            logger.error("server %s failed: %s%s", self.name, ending.message, last_words)
        else:
            logger.warning("server %s: %s; it is tried again in %.1f s", self.name, ending.message, retry_in_s)
        await self._announce(
            events.SERVER_FAILED,
            {
                "server": self.name,
                "transport": self.settings.transport,
                "error": {"type": ending.error_type, "msg": ending.message},
                "stderr_tail": tail,
                "attempt": self._failures,
                "retry_in_s": retry_in_s,
            },
        )

    async def _is_stopped_within(self, limit_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._is_stopping.wait()
        return self._is_stopping.is_set()

    def _enter(self, state: State) -> None:
        self.state = state
        if state == "starting":
            self._settled.clear()
        else:
            self._settled.set()

    async def _announce(self, event: str, payload: dict[str, Any]) -> None:
        await announce(self._coordinator, event, self.settings.redactor.data(payload))

    # --- calls

    async def call(self, tool: ToolDefinition, tool_name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call one of its tools; raises `ToolFailure`."""
        try:
            return await self._call(tool, tool_name, arguments)
        except ToolFailure as failure:
            raise failures.redacted(failure, self.settings.redactor, server=self.name, tool=tool.tool) from failure

    async def _call(self, tool: ToolDefinition, tool_name: str, arguments: dict[str, Any]) -> ToolResult:
        limits, redactor = self.settings.limits, self.settings.redactor
        reports = ProgressReports(self._coordinator, redactor, server=self.name, tool=tool.tool, tool_name=tool_name)
        reader = ResultReader(self.name, tool.tool, redactor, limits.max_content_size, limits.max_image_bytes)
        connection: Connection | None = None
        deadline = asyncio.timeout(limits.call_timeout_s)
        try:
            async with deadline:
                connection = await self._connected(tool_name)
                with connection.ending(deadline):
                    async with self._slots:
                        answer = await connection.call(tool, tool_name, arguments, reports.report)
        except TimeoutError:
            if not deadline.expired():
                raise
            if connection is not None and connection.is_over:
                raise failures.lost(tool_name, "it ended meanwhile", retryable=tool.is_repeatable) from None
            raise failures.timed_out(tool_name, limits.call_timeout_s, retryable=tool.is_repeatable) from None
        if len(answer.content) > _MANY_BLOCKS:
            return await asyncio.to_thread(reader.read, answer)
        return reader.read(answer)

    async def _connected(self, tool_name: str) -> "Connection":
        """Return the connection, once there is one; raises `ToolFailure` when there is none to wait for."""
        self.start()
        while self.state == "starting":
            await self._settled.wait()
        connection = self._connection
        if self.state == "ready" and connection is not None and not connection.is_over:
            return connection
        if self._refusal is not None:
            raise failures.refused(tool_name, self._refusal)
        state = "backoff" if self.state == "ready" else self.state
        facts: dict[str, Any] = {"state": state, "last_error": self.last_error, "retryable": state == "backoff"}
        if state == "backoff":
            facts["retry_after"] = round(max(0.0, self._retry_at_s - time.monotonic()), 3)
        text = f"{tool_name}: the server {self.name} is not available ({state})"
        raise ToolFailure(f"{text}: {self.last_error}" if self.last_error else text, "server_unavailable", **facts)


def _import_sdk() -> Any:
    """Import what needs the SDK, which takes long enough to be done in a worker thread."""
    module = importlib.import_module(f"{__package__}.connection")
    module.warm_up()
    return module


_MOST_PER_SECOND = 10


class ProgressReports:
    """Announces the progress of one call."""

    def __init__(self, coordinator: Any, redactor: Redactor, *, server: str, tool: str, tool_name: str) -> None:
        self._coordinator, self._redactor = coordinator, redactor
        self._subject = {"server": server, "tool": tool, "tool_name": tool_name}
        self._next_s = 0.0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Announce a step, unless the last one was just now."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + 1 / _MOST_PER_SECOND
        said = None if message is None else self._redactor.text(message)
        payload = {**self._subject, "progress": progress, "total": total, "message": said}
        await announce(self._coordinator, PROGRESS, payload)
