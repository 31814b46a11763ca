"""A server as a child process: messages over its stdin and stdout, and nothing of it left at the end.

Imported at the first start of a server only, since it needs the SDK.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter

from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.enclosure import Sandbox
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.permissions import Permissions
from amplifier_kit.sandbox.program import Program as Process
from amplifier_kit.tools.paths import resolve_roots
from amplifier_kit.tools.runs import run_to_end

from .entries import Program, ServerSettings
from .server_output import ServerOutput
from .start_error import StartError

_LARGE_LINE_BYTES = 1 << 20  # which is read off the event loop
_LONGEST_LINE_BYTES = 64 << 20
_UNSENT_BYTES = 64 << 20  # how much may wait in front of a server that does not read, before its callers do
_LAST_WORDS_S = 0.5
_SHOWN_CHARACTERS = 200

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class StdioTransport:
    """Starts the program when it is entered; when it is left, the program and all it started are ended."""

    def __init__(self, settings: ServerSettings, output: ServerOutput) -> None:
        self.tree: Process | None = None
        self.exit_code: int | None = None  # set when the server exited by itself
        self.problem = ""
        self._settings, self._output = settings, output
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def returncode(self) -> int | None:
        """How the server itself exited, None while it runs."""
        return self.tree.returncode if self.tree else None

    async def __aenter__(self) -> Streams:
        self.tree = await self._spawn()
        try:
            return await self._connect(self.tree)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.tree is not None:
            with anyio.CancelScope(shield=True):
                await run_to_end(self._close(self.tree))

    async def _spawn(self) -> Process:
        program = cast("Program", self._settings.target)
        cwd = await asyncio.to_thread(self._settings.cwd)
        if not await asyncio.to_thread(cwd.is_dir):
            raise StartError(f"the directory {str(cwd)!r}, in which the server is to run, does not exist")
        confined = await asyncio.to_thread(confine, program, cwd, self._settings)
        try:
            return await Process.start(
                [program.command, *program.args],
                confined.confinement,
                sandbox=confined.sandbox,
                environment=confined.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
            raise StartError(f"the command {program.command!r} cannot be run: {exc.strerror}") from exc

    async def _connect(self, tree: Process) -> Streams:
        loop = asyncio.get_running_loop()
        stdin, stdout, stderr = cast("tuple[IO[bytes], IO[bytes], IO[bytes]]", (tree.stdin, tree.stdout, tree.stderr))
        self._received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, self._to_send = anyio.create_memory_object_stream[SessionMessage](0)
        self._ends = (self._received, incoming, outgoing, self._to_send)
        out, err = asyncio.StreamReader(_LONGEST_LINE_BYTES), asyncio.StreamReader()
        self._pipes: list[asyncio.BaseTransport] = []
        for reader, pipe in ((out, stdout), (err, stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._pipes.append(transport)
        writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, stdin)
        writing.set_write_buffer_limits(high=_UNSENT_BYTES)
        self._pipes.append(writing)
        self._stdin = asyncio.StreamWriter(writing, protocol, None, loop)
        self._reading = asyncio.create_task(self._read(out))
        self._draining = asyncio.create_task(self._output.drain(err))
        self._tasks += [self._reading, self._draining]
        self._tasks += [asyncio.create_task(self._write(tree)), asyncio.create_task(self._watch(tree))]
        return incoming, outgoing

    async def _read(self, out: asyncio.StreamReader) -> None:
        """Pass on what the server says; it is read even if no one listens any more, so that the server can go on."""
        try:
            while line := await out.readline():
                if (message := await self._parse(line)) is not None:
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await self._received.send(SessionMessage(message))
        except ValueError:
            self.problem = f"the server sent a line of more than {_LONGEST_LINE_BYTES} bytes"
        finally:
            self._received.close()

    async def _parse(self, line: bytes) -> JSONRPCMessage | None:
        if not line.strip():
            return None
        try:
            if len(line) > _LARGE_LINE_BYTES:
                return await asyncio.to_thread(jsonrpc_message_adapter.validate_json, line, by_name=False)
            return jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            text = line[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
            await self._output.add(f"not a message: {text}")
            return None

    async def _write(self, tree: Process) -> None:
        try:
            async for item in self._to_send:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._stdin.write(text.encode() + b"\n")
                await self._stdin.drain()
        except OSError:
            await _within(_LAST_WORDS_S, tree.wait())
            if tree.returncode is None:  # otherwise it closed its stdin because it exited
                self.problem = self.problem or "the server closed its stdin"
                self._received.close()

    async def _watch(self, tree: Process) -> None:
        """End the connection with the server, even if something it started holds its stdout open."""
        await tree.wait()
        await asyncio.wait({self._reading, self._draining}, timeout=_LAST_WORDS_S)
        self._received.close()

    async def _close(self, tree: Process) -> None:
        limit_s = self._settings.limits.stop_timeout_s
        if self._tasks:
            if self._reading.done():
                await _within(_LAST_WORDS_S, tree.wait())
            self.exit_code = tree.returncode
            _, incoming, outgoing, _ = self._ends
            incoming.close()
            outgoing.close()
            self._stdin.close()
            await _within(min(2.0, 0.4 * limit_s), tree.wait())
        await tree.end(min(1.0, 0.2 * limit_s))
        if self._tasks:
            await asyncio.wait({self._reading, self._draining}, timeout=_LAST_WORDS_S)
        await self._release(tree)

    async def _release(self, tree: Process) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in getattr(self, "_ends", ()):
            end.close()
        for pipe in getattr(self, "_pipes", ()):
            if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
                pipe.abort()  # what was never read
            pipe.close()
        for file in (tree.stdin, tree.stdout, tree.stderr):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        await self._output.close()


async def _within(limit_s: float, waiting: Awaitable[object]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await waiting


# What a server that runs as a child process may see and do.


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Confined:
    """How a server is run; without a sandbox the confinement only says where."""

    confinement: Confinement
    sandbox: Sandbox | None
    environment: Mapping[str, str]


def confine(program: Program, cwd: Path, settings: ServerSettings) -> Confined:
    """Return what the entry of a server says about its sandbox; raises `StartError` when that cannot be had.

    What the session's policy hides stays hidden, and what it protects from writing stays so, whatever the entry says.
    """
    permissions = Permissions.of(settings.module.working_dir.coordinator, cwd)
    environment = program.environment(permissions.environment)
    if names := ", ".join(program.missed(permissions.withheld)):
        logger.warning("server %s is not given %s: add it to policy.environment.pass", settings.name, names)
    sandbox = None if program.sandbox == "off" else find_sandbox()
    if sandbox is None:
        if program.sandbox == "required":
            raise StartError("a sandbox is required, and none works on this machine; install the extra `sandbox`")
        if program.sandbox == "auto":
            logger.warning("server %s runs without a sandbox: none works on this machine", settings.name)
        return Confined(Confinement(cwd), None, environment)
    path = environment.get("PATH", os.defpath)
    if shutil.which(program.command, path=path) is None:
        raise StartError(f"the command {program.command!r} cannot be run: it is not found")
    return Confined(
        Confinement(
            working_dir=cwd.resolve(),
            writable=_places(program.write, cwd),
            readable=_places(program.read or (), cwd),
            read_only=permissions.read_only,
            hidden=permissions.hidden,
            shown=permissions.shown,
            kept_folders=permissions.kept_folders,
            kept_files=permissions.kept_files,
            private=() if program.read is None else _places(["~"], cwd),
            has_network=program.has_network and permissions.has_network,
        ),
        sandbox,
        environment,
    )


def _places(entries: Iterable[str], cwd: Path) -> tuple[Path, ...]:
    return tuple(resolve_roots(entries, cwd))
