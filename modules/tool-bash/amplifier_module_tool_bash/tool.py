"""The tool `bash`."""

import asyncio
import codecs
import contextlib
import copy
import logging
import os
import selectors
import subprocess
import threading
from asyncio import AbstractEventLoop, Event
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

from amplifier_core import ToolResult
from amplifier_kit.approval import Consent, consent_to
from amplifier_kit.sandbox.program import Program
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.paths import WorkingDir
from amplifier_kit.tools.runs import AnsweringTool, run_to_end

from .background import BackgroundCommands
from .comparison import Comparison
from .launch import END_GRACE_S, Announcement, Launch, LaunchPad, Shell, Starts, find_shell
from .safety import SafetyResult
from .settings import Settings

# What a command prints: read to its end, kept within bounds, made readable.


_CHUNK_BYTES = 65_536
_KEPT_SHARE = 0.4
_LEAST_LINES_SHARE = 0.2
_BINARY_FROM_BYTES = 512
_BINARY_CONTROL_SHARE = 0.05
_CONTROL_BYTES = bytes({*range(32), 0x7F} - {*b"\t\n\r"})
_LONGEST_CHARACTER = 4


class Capture:
    """One stream: its beginning and its end, and exact numbers about all of it."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.total = 0
        self._limit = limit
        self._kept = int(limit * _KEPT_SHARE)
        self._head = bytearray()
        self._tail = bytearray()
        self._line_ends = 0
        self._control_bytes = 0
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")("strict")

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._line_ends += data.count(b"\n")
        self._control_bytes += len(data) - len(data.translate(None, _CONTROL_BYTES))
        self._check_encoding(data)
        room = self._limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * max(self._kept, _CHUNK_BYTES):
            del self._tail[: -self._kept or None]

    @property
    def is_truncated(self) -> bool:
        return self.total > self._limit

    @property
    def text(self) -> str:
        """The stream as text; its middle is left out when it is too long, all of it if it is not text at all."""
        if self._is_binary:
            share = self._control_bytes / self.total
            return (
                f"[binary output withheld: {self.name}, {self.total} bytes, {share:.0%} control bytes;"
                " redirect it to a file to keep it]"
            )
        return self._shortened() if self.is_truncated else self._head.decode("utf-8", "replace")

    @property
    def _is_binary(self) -> bool:
        if self.total < _BINARY_FROM_BYTES or self._control_bytes <= self.total * _BINARY_CONTROL_SHARE:
            return False
        return self._decoder is None or bool(self._decoder.getstate()[0])

    def _check_encoding(self, data: bytes) -> None:
        if self._decoder is not None:
            try:
                self._decoder.decode(data)
            except UnicodeDecodeError:
                self._decoder = None

    def _shortened(self) -> str:
        head, tail = bytes(self._head[: self._kept]), self._last(self._kept)
        lines = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :] if b"\n" in tail else b""
        if len(lines[0]) + len(lines[1]) < self._limit * _LEAST_LINES_SHARE:
            marker = f"[...OUTPUT TRUNCATED (byte-level)...] {self._numbers}"
            return f"{_without_torn_end(head)}\n{marker}\n{_without_torn_start(tail)}"
        shown = [part.count(b"\n") + bool(part and not part.endswith(b"\n")) for part in lines]
        total = self._line_ends + (not self._last(1).endswith(b"\n"))
        counts = f"first {shown[0]} and last {shown[1]} of {total} lines shown, {total - sum(shown)} left out"
        before, after = (part.decode("utf-8", "replace") for part in lines)
        return f"{before}\n[...OUTPUT TRUNCATED...] {counts}; {self._numbers}\n\n{after}"

    @property
    def _numbers(self) -> str:
        return f"{self.total} bytes in total, limit {self._limit} bytes"

    def _last(self, count: int) -> bytes:
        kept = self._tail if len(self._tail) >= count else self._head + self._tail
        return bytes(kept[len(kept) - count :])


class PipeReader:
    """Reads both pipes of a child in a thread of its own, for as long as anyone holds them open.

    After `release` what still comes is read and forgotten, so that the writer is not disturbed.
    """

    def __init__(self, pipes: dict[IO[bytes], Capture], loop: AbstractEventLoop) -> None:
        self.is_drained = Event()
        self._pipes = pipes
        self._lock = threading.Lock()
        self._is_released = False
        threading.Thread(target=self._read, args=(loop,), name="bash-output", daemon=True).start()

    def release(self) -> None:
        """Leave the captures as they are."""
        with self._lock:
            self._is_released = True

    def _read(self, loop: AbstractEventLoop) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe, capture in self._pipes.items():
                selector.register(pipe, selectors.EVENT_READ, capture)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _CHUNK_BYTES)
                    with self._lock:
                        if not self._is_released:
                            key.data.add(data)
                    if not data:
                        selector.unregister(key.fileobj)
        for pipe in self._pipes:
            pipe.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits any more
            loop.call_soon_threadsafe(self.is_drained.set)


def _without_torn_end(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _without_torn_start(data: bytes) -> str:
    start = 0
    while start < min(len(data), _LONGEST_CHARACTER - 1) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")


logger = logging.getLogger(__name__)

_BY_A_PERSON = (Consent.APPROVED, Consent.REMEMBERED)

_LONGEST_TIMEOUT_S = 10.0**9
_MAX_COMMAND_BYTES = 131_071  # what a system takes as one argument
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The command or script that bash runs."},
        "timeout": {
            "type": "integer",
            "description": "Seconds after which the command and everything it started is killed.",
        },
        "run_in_background": {
            "type": "boolean",
            "default": False,
            "description": "Return at once and let the command go on: for servers, watchers and long builds.",
        },
    },
    "required": ["command"],
}
_CHECKED = {**_SCHEMA, "properties": {**_SCHEMA["properties"], "timeout": {"type": "number"}}}
_DESCRIPTION = (
    "Run a command with bash in the working directory and get its stdout, stderr and returncode. Every call is a new"
    " shell: `cd` and variables do not carry over. Nothing can be typed into it: stdin is empty. A command is killed"
    " when its time is up ({timeout} s unless `timeout` says otherwise), and the middle of a long output is left"
    " out. Use `run_in_background` for what does not end by itself. Not for reading, writing or searching files where"
    " a tool of its own does that."
)
_UNCONFINED = (
    "no sandbox works on this machine, so commands run with all rights of this process; install bubblewrap or the extra"
    " `sandbox`"
)


@dataclass(frozen=True, slots=True)
class _Request:
    """What the tool is asked to do."""

    command: str
    timeout_s: float
    is_background: bool

    @classmethod
    def read(cls, given: Any, settings: Settings) -> "_Request":
        """Return the input if it can be used; raises `ToolFailure`."""
        command = given.get("command") if isinstance(given, dict) else None
        if not isinstance(command, str) or not command.strip():
            raise ToolFailure("Command is required", "invalid_input")
        if problem := _problem(command):
            raise ToolFailure(f"bash: the command {problem}; write it to a file and run that", "invalid_input")
        values = read_input("bash", _CHECKED, given)
        timeout_s = float(values.get("timeout", settings.timeout_s))
        if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
            raise ToolFailure(f"bash: 'timeout' must be a positive number, got {timeout_s}", "invalid_input")
        if settings.max_timeout_s is not None:
            timeout_s = min(timeout_s, settings.max_timeout_s)
        return cls(command, timeout_s, values["run_in_background"])


def _problem(command: str) -> str:
    """Return why a command cannot be handed to a shell."""
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return "is not valid text"
    if "\0" in command:
        return "contains a NUL character"
    return f"has {size} bytes, more than {_MAX_COMMAND_BYTES}" if size > _MAX_COMMAND_BYTES else ""


def _with_undone(result: ToolResult, undone: list[str]) -> ToolResult:
    """Return a result that says what was put back."""
    if not undone:
        return result
    if not isinstance(result.output, dict):  # that of a timeout
        return result.model_copy(update={"output": "\n".join([str(result.output), *undone])})
    note = "; ".join(filter(None, [result.output.get("note", ""), *undone]))
    undone = [*result.output.get("undone", ()), *undone]
    return result.model_copy(update={"output": {**result.output, "undone": undone, "note": note}})


class BashTool(AnsweringTool):
    """Runs shell commands within the limits of a safety profile."""

    name = "bash"
    effects = frozenset({"read", "write", "execute", "network"})

    def __init__(self, config: Mapping[str, Any] | None = None, coordinator: Any = None) -> None:
        self.settings = Settings(config)
        self.description = _DESCRIPTION.format(timeout=whole(self.settings.timeout_s))
        self._coordinator = coordinator
        self._working_dir = WorkingDir(self.settings.working_dir, coordinator)
        self._starts = Starts()
        self._foreground = ForegroundCommands(self.settings.max_output_bytes, coordinator, self._starts)
        self._comparison = Comparison(coordinator, self.name)
        self._background = BackgroundCommands(
            self.settings.background_log_dir, coordinator, self._starts, self._comparison
        )
        self._pad = LaunchPad(self.settings, coordinator)
        self._active = 0
        self._has_told = False

    @property
    def input_schema(self) -> dict[str, Any]:
        return copy.deepcopy(_SCHEMA)

    def get_metadata(self) -> dict[str, Any]:
        """Return what approval needs to know."""
        return {
            "requires_approval": self.settings.require_approval,
            "approval_hints": {
                "risk_level": "high",
                "dangerous_patterns": list(self.settings.denied_commands),
                "safe_patterns": list(self.settings.allowed_commands),
            },
        }

    async def is_contained(self, given: Any) -> bool:
        """True for a command that is understood and would run in a sandbox with a network of its own."""
        command = given.get("command") if isinstance(given, dict) else None
        if not isinstance(command, str) or _problem(command):
            return False
        return await asyncio.to_thread(self._is_contained, command)

    def _is_contained(self, command: str) -> bool:
        return self._pad.is_containing() and self._judge(command)[1].allowed

    async def close(self) -> None:
        """End what is still being waited for, and background commands: all that are sandboxed, others as configured."""
        await self._starts.wait()
        await self._foreground.close()
        await self._background.close(is_killing=self.settings.kill_background_on_cleanup)

    async def answer(self, given: Any) -> ToolResult:
        """Run a command; only a cancellation is raised, once nothing of the command is left."""
        request = _Request.read(given, self.settings)
        logger.debug("bash: a command of %d characters", len(request.command))
        consent = consent_to(self._coordinator, self.name, given)
        shell, verdict = await asyncio.to_thread(self._judge, request.command)
        if not verdict.allowed and not (consent in _BY_A_PERSON and not verdict.is_understood):
            message = f"Command denied for safety: {verdict.reason}\n  Hint: {verdict.hint}"
            raise ToolFailure(message, "command_denied", matched_pattern=verdict.matched_pattern)
        return await self._run(request, shell, consent)

    def _judge(self, command: str) -> tuple[Shell, SafetyResult]:
        shell = find_shell()
        return shell, self.settings.validator.validate(command, shell.name)

    async def _run(self, request: _Request, shell: Shell, consent: Consent) -> ToolResult:
        limit = self.settings.max_concurrent
        if limit is not None and self._active >= limit:
            message = f"bash: the concurrent command limit of {limit} is reached; wait for a command to end"
            raise ToolFailure(message, "concurrency_limit", retryable=True)
        self._active += 1
        try:
            launch = await asyncio.to_thread(self._prepare, request.command, shell, consent)
            can_change = consent is not Consent.UNASKED or launch.sandbox is None
            if request.is_background:
                result = await self._background.start(launch, is_compared=can_change)
            elif can_change:
                result = await self._run_compared(launch, request.timeout_s)
            else:
                result = await self._foreground.run(launch, request.timeout_s)
            result = _with_undone(result, self._background.take_undone())
            return self._marked(result) if launch.misses_sandbox else result
        finally:
            self._active -= 1

    async def _run_compared(self, launch: Launch, timeout_s: float) -> ToolResult:
        """Run a command that can write; what it changed in running places is put back unless a person keeps it."""
        await self._comparison.begin(launch)
        undone: list[str] = []
        try:
            result = await self._foreground.run(launch, timeout_s)
        finally:
            undone = await run_to_end(self._comparison.end(launch))
        return _with_undone(result, undone)

    def _prepare(self, command: str, shell: Shell, consent: Consent) -> Launch:
        return self._pad.prepare(command, shell, self._working_dir.path(), consent, self._background.log_dirs)

    def _marked(self, result: ToolResult) -> ToolResult:
        """Return a result that says that the command ran without a sandbox; the first that can, in a sentence."""
        metadata = {"sandbox": "none"}
        if not isinstance(result.output, dict):  # that of a timeout, which has no room for a sentence
            return result.model_copy(update={"error": {**(result.error or {}), "metadata": metadata}})
        output = {**result.output, "metadata": metadata}
        if not self._has_told:
            logger.warning("%s", _UNCONFINED)
            self._has_told = True
            output["note"] = "; ".join(filter(None, [output.get("note", ""), _UNCONFINED]))
        return result.model_copy(update={"output": output})


# Commands that are waited for.


_DRAIN_S = 0.5
_STILL_OPEN = "processes started by the command are still running; what they print from now on is not shown"


class ForegroundCommands:
    """The commands of one session that are being waited for."""

    def __init__(self, max_output_bytes: int, coordinator: Any, starts: Starts) -> None:
        self._max_output_bytes, self._starts = max_output_bytes, starts
        self._coordinator = coordinator
        self._programs: set[Program] = set()

    async def run(self, launch: Launch, timeout_s: float) -> ToolResult:
        """Run a command to its end and return what it printed; when time is up, or on cancellation, its tree is ended.

        Raises `ToolFailure` when it cannot be started.
        """
        loop = asyncio.get_running_loop()
        with self._starts.one():
            program = await launch.start(subprocess.PIPE, subprocess.PIPE)
            self._programs.add(program)
        deadline = loop.time() + timeout_s
        announcement = Announcement(self._coordinator, launch, program.pid, whole(timeout_s))
        out, err = Capture("stdout", self._max_output_bytes), Capture("stderr", self._max_output_bytes)
        pipes = cast("tuple[IO[bytes], IO[bytes]]", (program.stdout, program.stderr))  # both were asked for
        reader = PipeReader(dict(zip(pipes, (out, err), strict=True)), loop)
        flags = {"timed_out": False, "cancelled": False}
        try:
            await announcement.started()
            flags["timed_out"] = not await _wait(program, deadline)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await reader.is_drained.wait()
        except BaseException as exc:
            flags["cancelled"] = isinstance(exc, asyncio.CancelledError)
            await program.stop(END_GRACE_S)
            raise
        finally:
            self._programs.discard(program)
            reader.release()
            sizes = {"stdout_bytes": out.total, "stderr_bytes": err.total}
            is_truncated = out.is_truncated or err.is_truncated
            await run_to_end(announcement.finished(program.returncode, **sizes, truncated=is_truncated, **flags))
        if program.was_refused:
            raise ToolFailure(f"bash: the sandbox could not run the command: {err.text.strip()}", "sandbox_failed")
        if flags["timed_out"]:
            return _timed_out(whole(timeout_s), out.text, err.text)
        is_left_open = not reader.is_drained.is_set() and not program.has_namespace
        notes = [launch.shell.note, _STILL_OPEN if is_left_open else ""]
        if program.returncode != 0:
            notes.append(launch.note_on_environment(f"{out.text}\n{err.text}"))
        return _finished(program.returncode, out, err, "; ".join(filter(None, notes)))

    async def close(self) -> None:
        """End what still runs; those who wait for it get an answer."""
        await asyncio.gather(*(program.stop(END_GRACE_S) for program in self._programs))


def whole(seconds: float) -> float:
    """Return a number of seconds, as an integer where it is one, so that it reads as it was given."""
    return int(seconds) if seconds.is_integer() else seconds


async def _wait(program: Program, deadline: float) -> bool:
    """Wait for the command's end; False when its time was up and it had to be ended."""
    try:
        async with asyncio.timeout_at(deadline):
            await program.wait()
    except TimeoutError:
        await program.stop(END_GRACE_S)
        return False
    return True


def _finished(returncode: int | None, out: Capture, err: Capture, note: str) -> ToolResult:
    output: dict[str, Any] = {"stdout": out.text, "stderr": err.text, "returncode": returncode}
    if out.is_truncated or err.is_truncated:
        output |= {"truncated": True, "stdout_total_bytes": out.total, "stderr_total_bytes": err.total}
    if note:
        output["note"] = note
    if returncode == 0:
        return ToolResult(output=output)
    message = f"Command exited with code {returncode}"
    error = {"message": message, "code": "exit_status", "returncode": returncode}
    return ToolResult(success=False, output=output, error=error)


def _timed_out(timeout_s: float, stdout: str, stderr: str) -> ToolResult:
    message = f"Command timed out after {timeout_s} seconds"
    output = "\n".join(part for part in (message, stdout, stderr) if part)
    error = {"message": message, "code": "timeout", "timeout": timeout_s, "stdout": stdout, "stderr": stderr}
    return ToolResult(success=False, output=output, error=error)
