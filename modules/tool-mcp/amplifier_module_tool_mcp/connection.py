"""One connection to a server, from its start to its end. Imported at the first start only, since it needs the SDK."""

import asyncio
import importlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import anyio
import anyio.lowlevel
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage
from mcp.types import (
    CallToolResult,
    Implementation,
    JSONRPCResponse,
    LoggingMessageNotificationParams,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from amplifier_core import __version__
from amplifier_core.utils import json_safe

from . import failures
from .connection_ending import Ending
from .definitions import ToolDefinition, offered, repair_listing
from .entries import ServerSettings
from .failures import described, first_leaf
from .http_transport import Statuses, WatchedTransport, http_transport, statuses
from .server_output import ServerOutput
from .start_error import StartError
from .stdio_transport import StdioTransport

logger = logging.getLogger(__name__)

Listed = Callable[[list[ToolDefinition]], Awaitable[None]]

_MOST_PAGES = 100
_GATHERING_S = 0.2
_LISTEN_AGAIN_S = 1.0
_NO_COMMON_REVISION = ("protocol version", "mode must be")  # how the SDK reports revisions that do not match
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO}


def warm_up() -> None:
    """Import and build what the SDK leaves to the first call, where it would hold up the event loop."""
    anyio.run(anyio.lowlevel.checkpoint)
    importlib.import_module("referencing")
    validators = importlib.import_module("jsonschema.validators")
    validators.Draft202012Validator.check_schema({"type": "object"})


class Connection:
    """Is entered and left by the one task that calls `run`; calls come from any task."""

    def __init__(self, settings: ServerSettings, output: ServerOutput) -> None:
        self.settings = settings
        self.client: Client | None = None
        self.is_over = False
        self._output = output
        self._process = StdioTransport(settings, output) if settings.transport == "stdio" else None
        self._life = anyio.CancelScope()
        self._serving: anyio.CancelScope | None = None
        self._is_stopping = False
        self._problem = ""
        self._changed = asyncio.Event()
        self._calls: set[asyncio.Timeout] = set()

    @property
    def pid(self) -> int | None:
        return self._process.tree.pid if self._process and self._process.tree else None

    def facts(self) -> dict[str, Any]:
        """Return what the server said about itself."""
        client = self.client
        info = client.server_info if client else None
        return {
            "protocol_version": client.protocol_version if client else None,
            "server_info": info.model_dump(by_alias=True, exclude_none=True) if info else None,
            "instructions": client.instructions if client else None,
        }

    async def run(self, on_ready: Listed, on_change: Listed) -> Ending:
        """Connect, list the tools, and stay until the connection ends or `stop` is called."""
        noted = Statuses()
        statuses.set(noted)
        error: BaseException | None = None
        was_ready = False
        try:
            with self._life:
                self._life.deadline = anyio.current_time() + self.settings.limits.start_limit_s
                async with self._connect() as client:
                    tools = offered(await self._list(client), self.settings)
                    self._life.deadline = math.inf
                    self.client, was_ready = client, True
                    await on_ready(tools)
                    await self._serve(client, on_change)
                    self._finish()
                    self._life.deadline = anyio.current_time() + self.settings.limits.stop_timeout_s
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is how the connection ended, and is reported as that
            error = first_leaf(exc)
        finally:
            self._finish()
        return self._ending(was_ready, error, noted.last)

    def stop(self) -> None:
        """Have `run` leave the connection."""
        self._is_stopping = True
        self._finish()
        (self._serving or self._life).cancel()

    def break_off(self, problem: str) -> None:
        """Have `run` take the connection for lost."""
        self._problem = self._problem or problem
        self._finish()
        (self._serving or self._life).cancel()

    async def kill(self) -> None:
        """End the processes of the server at once."""
        if self._process and self._process.tree:
            await self._process.tree.end(0)

    def refresh(self) -> None:
        """Have the tools listed again."""
        self._changed.set()

    @contextmanager
    def ending(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Let `deadline` pass at once when the connection ends meanwhile."""
        self._calls.add(deadline)
        try:
            yield
        finally:
            self._calls.discard(deadline)

    async def call(
        self, tool: ToolDefinition, tool_name: str, arguments: dict[str, Any], on_progress: ProgressFnT
    ) -> CallToolResult:
        """Call a tool; raises `ToolFailure`."""
        noted = Statuses()
        token = statuses.set(noted)
        try:
            if self.client is None or self.is_over:
                raise failures.lost(tool_name, "it has just ended", retryable=tool.is_repeatable)
            return await self.client.call_tool(tool.tool, arguments, progress_callback=on_progress)
        except MCPError as exc:
            raise self._failure(exc, tool, tool_name, noted.last) from exc
        except (RuntimeError, ValidationError, ExceptionGroup) as exc:
            if self.is_over:
                raise failures.lost(tool_name, described(exc), retryable=tool.is_repeatable) from exc
            raise failures.broken_protocol(tool_name, first_leaf(exc)) from exc
        finally:
            statuses.reset(token)

    def _failure(self, error: MCPError, tool: ToolDefinition, tool_name: str, status: int | None) -> Exception:
        if status in failures.REFUSED_STATUSES:
            return failures.refused(tool_name, status)
        if failures.means_lost(error.code, status):
            self.break_off(error.message)
            return failures.lost(tool_name, error.message, retryable=tool.is_repeatable)
        if error.code == failures.REQUEST_TIMEOUT:
            limit_s = self.settings.limits.call_timeout_s
            return failures.timed_out(tool_name, limit_s, retryable=tool.is_repeatable)
        if error.code == failures.METHOD_NOT_FOUND:
            self.refresh()
        message = f"{error.message} (HTTP {status})" if status else error.message
        return failures.from_code(tool_name, error.code, message, error.data)

    def _connect(self) -> Client:
        transport: AbstractAsyncContextManager[Any] = self._process or http_transport(
            self.settings, lambda: self.break_off("the server refused a message")
        )
        return Client(
            WatchedTransport(transport, self._on_item, self._on_end),
            mode=self.settings.protocol,
            client_info=Implementation(name="amplifier", version=__version__),
            cache=None,
            message_handler=self._on_message,
            logging_callback=self._on_log,
        )

    async def _serve(self, client: Client, on_change: Listed) -> None:
        with anyio.CancelScope() as self._serving:
            if self._is_stopping or self._problem:
                self._serving.cancel()
            async with anyio.create_task_group() as tasks:
                if _announces_changes(client):
                    tasks.start_soon(self._listen, client)
                while True:
                    await self._changed.wait()
                    await anyio.sleep(_GATHERING_S)
                    self._changed.clear()
                    if (tools := await self._list_again(client)) is not None:
                        await on_change(tools)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes; what changed meanwhile shows in the listing that follows."""
        while True:
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    if not subscription.honored.tools_list_changed:
                        return
                    self._changed.set()
                    async for _ in subscription:
                        self._changed.set()
            except SubscriptionLost:
                logger.debug("server %s: the subscription to changes was lost", self.settings.name)
            except MCPError as exc:
                if exc.code != failures.CONNECTION_CLOSED:
                    logger.warning("server %s: changes are not announced: %s", self.settings.name, self._said(exc))
                    return
            await anyio.sleep(_LISTEN_AGAIN_S)

    async def _list_again(self, client: Client) -> list[ToolDefinition] | None:
        try:
            with anyio.fail_after(self.settings.limits.call_timeout_s):
                return offered(await self._list(client), self.settings, level=logging.DEBUG)
        except (MCPError, ValidationError, TimeoutError) as exc:
            logger.warning("server %s: the tools cannot be listed again: %s", self.settings.name, self._said(exc))
            return None

    async def _list(self, client: Client) -> list[Tool]:
        tools: list[Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            try:
                page = await client.list_tools(cursor=cursor)
            except MCPError as exc:
                if exc.code == failures.METHOD_NOT_FOUND and not tools:
                    return []  # a server without tools need not know the question
                raise
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
            if cursor in seen:
                break
            seen.add(cursor)
        logger.warning("server %s: the listing does not end; %d tools are taken", self.settings.name, len(tools))
        return tools

    def _on_item(self, item: SessionMessage | Exception) -> None:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse):
            repair_listing(message.result, self.settings.name)
            cut_answer(message.result)

    def _on_end(self) -> None:
        if self._serving is not None:  # otherwise its starter learns about it
            self.break_off("the server closed the connection")

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _on_log(self, params: LoggingMessageNotificationParams) -> None:
        data = params.data if isinstance(params.data, str) else json.dumps(json_safe(params.data), ensure_ascii=False)
        text = f"{params.logger}: {data}" if params.logger else data
        await self._output.add(text, _LEVELS.get(params.level, logging.WARNING))

    def _finish(self) -> None:
        """Take no more calls and end those that are running."""
        self.is_over = True
        now = asyncio.get_running_loop().time()
        for deadline in self._calls:
            if not deadline.expired():
                deadline.reschedule(now)

    def _ending(self, was_ready: bool, error: BaseException | None, status: int | None) -> Ending:
        if self._is_stopping:
            return Ending("cleanup", was_ready, exit_code=self._process.returncode if self._process else None)
        exit_code = self._process.exit_code if self._process else None
        is_refused = not was_ready and status in failures.REFUSED_STATUSES
        error_type, message = self._cause(was_ready, error, exit_code, status)
        return Ending(
            reason="connection_lost" if exit_code is None else "exited",
            was_ready=was_ready,
            error_type=error_type,
            message=self.settings.redactor.text(message),
            is_final=is_refused or (not was_ready and _is_final(error)),
            status=status if is_refused else None,
            exit_code=exit_code,
        )

    def _cause(
        self, was_ready: bool, error: BaseException | None, exit_code: int | None, status: int | None
    ) -> tuple[str, str]:
        """Return what best explains the end: its type and what is to be said about it."""
        kind = type(error).__name__ if error else "ConnectionError"
        if self._process and self._process.problem:
            return kind, self._process.problem
        if exit_code is not None:
            how = f"exited with code {exit_code}" if exit_code >= 0 else f"was ended by signal {-exit_code}"
            return "ExitError", f"the server {how}"
        if not was_ready and status in failures.REFUSED_STATUSES:
            return kind, f"the server refused access (HTTP {status})"
        if error is not None:
            return kind, described(error) + (f" (HTTP {status})" if status and not was_ready else "")
        if not was_ready and not self._problem:
            return "TimeoutError", f"the server did not start within {self.settings.limits.start_limit_s:g} seconds"
        return kind, self._problem or "the connection ended"

    def _said(self, error: BaseException) -> str:
        return self.settings.redactor.text(described(error))


def _announces_changes(client: Client) -> bool:
    """True if changes of the list come by subscription: earlier revisions send them unasked."""
    tools = client.server_capabilities.tools
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS and bool(tools and tools.list_changed)


def _is_final(error: BaseException | None) -> bool:
    if isinstance(error, MCPError):
        return error.code == failures.UNSUPPORTED_REVISION
    is_about_revisions = isinstance(error, RuntimeError | ValueError) and any(
        words in str(error) for words in _NO_COMMON_REVISION
    )
    return isinstance(error, StartError) or is_about_revisions


MAX_BLOCKS = 10_000
MAX_TEXT_CHARS = 10 << 20


def cut_answer(result: Any) -> None:
    """Leave out what is too much in the answer to a call, and say so in a block of its own; others stay as they are."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return
    total = len(content)
    room = MAX_TEXT_CHARS
    for index, block in enumerate(content):
        room -= _size(block)
        if room < 0 or index >= MAX_BLOCKS:
            kept = content[:index]
            note = f"[cut: {index} of {total} blocks of the answer are shown; the rest is too much]"
            if not kept and isinstance(block, dict) and isinstance(block.get("text"), str):
                kept = [{**block, "text": block["text"][:MAX_TEXT_CHARS]}]
                note = f"[cut: the first {MAX_TEXT_CHARS} characters of the answer are shown]"
            result["content"] = [*kept, {"type": "text", "text": note}]
            return


def _size(block: Any) -> int:
    """Return how many characters of text a block has, wherever it has them."""
    if not isinstance(block, dict):
        return 0
    resource = block.get("resource")
    texts = (block.get("text"), resource.get("text") if isinstance(resource, dict) else None)
    return sum(len(text) for text in texts if isinstance(text, str))
