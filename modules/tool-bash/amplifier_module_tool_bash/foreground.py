"""Commands that are waited for."""

import asyncio
import contextlib
import subprocess
from typing import IO, Any, cast

from amplifier_core import ToolResult
from amplifier_kit.sandbox.program import Program
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import run_to_end

from .launch import END_GRACE_S, Announcement, Launch
from .output import Capture, PipeReader
from .pending_starts import Starts

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
