"""Commands that go on while the conversation does."""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from amplifier_core import ToolResult
from amplifier_kit.sandbox.program import Program
from amplifier_kit.tools.input import os_failure
from amplifier_kit.tools.runs import run_to_end

from .comparison import Comparison
from .launch import END_GRACE_S, Announcement, Launch, Starts

_PROGRESS = "Both outputs go to the log file. Look into it for progress"


class BackgroundCommands:
    """The background commands of one session; each writes to a private log file and is reaped when it ends.

    What one that can write changed in places that run is put back when it ends, or when the session does before it.
    """

    def __init__(self, log_dir: Path | None, coordinator: Any, starts: Starts, comparison: Comparison) -> None:
        self._log_dir, self._starts, self._comparison = log_dir, starts, comparison
        self._coordinator = coordinator
        self._programs: list[Program] = []
        self._watchers: dict[Program, asyncio.Task[None]] = {}
        self._compared: dict[Program, tuple[Launch, Path]] = {}
        self._asking: set[Program] = set()
        self._undone: list[str] = []
        self._is_closing = False

    @property
    def log_dirs(self) -> list[Path]:
        """Where log files are, if there are any."""
        return [self._log_dir] if self._programs and self._log_dir is not None else []

    def take_undone(self) -> list[str]:
        """Return what was put back since the last command, a sentence for each file, once."""
        undone, self._undone = self._undone, []
        return undone

    async def start(self, launch: Launch, *, is_compared: bool) -> ToolResult:
        """Start a command and say where it can be found; raises `ToolFailure`."""
        if is_compared:
            await self._comparison.begin(launch)
        try:
            with self._starts.one():
                program, log_file = await self._started(launch, is_compared=is_compared)
        except BaseException:
            if is_compared:
                await run_to_end(self._comparison.end(launch))
            raise
        ending = (
            "no other command can reach it, it ends with the session"
            if program.has_namespace
            else f"end the command with: kill -- -{program.pid}"
        )
        return ToolResult(
            output={
                "pid": program.pid,
                "message": f"Command started in the background with PID {program.pid}",
                "note": "; ".join(filter(None, [launch.shell.note, _PROGRESS, ending])),
                "log_file": str(log_file),
            }
        )

    async def _started(self, launch: Launch, *, is_compared: bool) -> tuple[Program, Path]:
        log, log_file = await run_to_end(asyncio.to_thread(self._create_log), undo=_discard)
        try:
            with log:
                program = await launch.start(log, subprocess.STDOUT)
            announcement = Announcement(self._coordinator, launch, program.pid, None, is_background=True)
            await _announce(program, announcement)
        except BaseException:
            log_file.unlink(missing_ok=True)
            raise
        self._programs.append(program)
        if is_compared:
            self._compared[program] = (launch, log_file)
        self._watchers[program] = watcher = asyncio.create_task(self._watch(program, announcement, log_file))
        watcher.add_done_callback(lambda _: self._watchers.pop(program, None))
        return program, log_file

    async def close(self, *, is_killing: bool) -> None:
        """End what lives in a sandbox of its own, with `is_killing` everything that was started, and stop watching."""
        self._is_closing = True
        programs, self._programs = self._programs, []
        ended = [program for program in programs if is_killing or program.has_namespace]
        watchers = dict(self._watchers)
        for program, watcher in watchers.items():
            if program not in ended or program in self._asking:
                watcher.cancel()
        await asyncio.gather(*(program.stop(END_GRACE_S) for program in ended))
        await asyncio.gather(*watchers.values(), return_exceptions=True)
        for program in tuple(self._compared):
            await self._compare(program)

    async def _watch(self, program: Program, announcement: Announcement, log_file: Path) -> None:
        """Wait for the end of a command and announce it; then see to what it changed."""
        returncode = await program.wait()
        size = 0
        with contextlib.suppress(OSError):
            size = (await asyncio.to_thread(log_file.stat)).st_size
        await announcement.finished(returncode, stdout_bytes=size)
        await self._compare(program)

    async def _compare(self, program: Program) -> None:
        """Put back what a command changed, then ask a person about it, unless the session is ending."""
        compared = self._compared.pop(program, None)
        if compared is None:
            return
        launch, log_file = compared
        copies = log_file.with_name(f"{log_file.stem}-undone")
        found = await run_to_end(self._comparison.end_late(launch, copies))
        self._undone += found.undone
        if not found.changes or self._is_closing:
            return
        self._asking.add(program)
        try:
            if await self._comparison.brings_again(found):
                self._undone = [sentence for sentence in self._undone if sentence not in found.undone]
        finally:
            self._asking.discard(program)

    def _create_log(self) -> tuple[BinaryIO, Path]:
        try:
            if self._log_dir is None:
                self._log_dir = Path(tempfile.mkdtemp(prefix="amplifier-bash-"))
            self._log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(prefix="command-", suffix=".log", dir=self._log_dir)
        except OSError as exc:
            where = "the temporary directory" if self._log_dir is None else repr(str(self._log_dir))
            raise os_failure(f"bash: no log file can be created in {where}: {exc.strerror}", exc) from exc
        return os.fdopen(descriptor, "wb"), Path(name)


def _discard(created: tuple[BinaryIO, Path]) -> None:
    log, log_file = created
    log.close()
    log_file.unlink(missing_ok=True)


async def _announce(program: Program, announcement: Announcement) -> None:
    """Announce a start; cancelled meanwhile, end the command and announce that as well."""
    try:
        await announcement.started()
    except asyncio.CancelledError:
        try:
            await program.stop(END_GRACE_S)
        finally:
            await run_to_end(announcement.finished(program.returncode, cancelled=True))
        raise
