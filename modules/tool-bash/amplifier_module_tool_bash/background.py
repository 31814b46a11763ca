"""Commands that go on while the conversation does."""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from amplifier_core import ToolResult
from amplifier_kit.tools.input import os_failure
from amplifier_kit.tools.processes import ProcessTree
from amplifier_kit.tools.runs import run_to_end

from .launch import Announcement, Launch


class BackgroundCommands:
    """The background commands of one session; each writes to a private log file and is reaped when it ends."""

    def __init__(self, log_dir: Path | None, coordinator: Any) -> None:
        self._log_dir = log_dir
        self._coordinator = coordinator
        self._trees: list[ProcessTree] = []
        self._watchers: set[asyncio.Task[None]] = set()

    async def start(self, launch: Launch) -> ToolResult:
        """Start a command and say where it can be found; raises `ToolFailure`."""
        descriptor, log_file = await run_to_end(asyncio.to_thread(self._create_log))
        try:
            with os.fdopen(descriptor, "wb") as log:
                tree = await launch.start(log, subprocess.STDOUT)
        except BaseException:
            log_file.unlink(missing_ok=True)
            raise
        announcement = Announcement(self._coordinator, launch, tree.pid, None, is_background=True)
        try:
            await announcement.started()
        except asyncio.CancelledError:
            await tree.kill()
            await run_to_end(announcement.finished(tree.returncode, cancelled=True))
            raise
        self._trees.append(tree)
        watcher = asyncio.create_task(_watch(tree, announcement, log_file))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        note = f"Both outputs go to the log file. Look into it for progress; end the command with: kill -- -{tree.pid}"
        return ToolResult(
            output={
                "pid": tree.pid,
                "message": f"Command started in the background with PID {tree.pid}",
                "note": "; ".join(filter(None, [launch.shell.note, note])),
                "log_file": str(log_file),
            }
        )

    async def close(self, *, is_killing: bool) -> None:
        """Stop watching; with `is_killing` end everything that was started, also what outlived its command."""
        trees, self._trees = self._trees, []
        watchers = list(self._watchers)
        if is_killing:
            await asyncio.gather(*(tree.kill() for tree in trees))
        else:
            for watcher in watchers:
                watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    def _create_log(self) -> tuple[int, Path]:
        try:
            if self._log_dir is None:
                self._log_dir = Path(tempfile.mkdtemp(prefix="amplifier-bash-"))
            self._log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(prefix="command-", suffix=".log", dir=self._log_dir)
        except OSError as exc:
            where = "the temporary directory" if self._log_dir is None else repr(str(self._log_dir))
            raise os_failure(f"bash: no log file can be created in {where}: {exc.strerror}", exc) from exc
        return descriptor, Path(name)


async def _watch(tree: ProcessTree, announcement: Announcement, log_file: Path) -> None:
    """Wait for the end of a command and announce it."""
    returncode = await tree.wait()
    size = 0
    with contextlib.suppress(OSError):
        size = (await asyncio.to_thread(log_file.stat)).st_size
    await announcement.finished(returncode, stdout_bytes=size)
