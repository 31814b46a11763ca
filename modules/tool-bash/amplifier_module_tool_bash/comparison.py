"""The places that run, compared before and after each command that can write: what changed is put back, or kept."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from amplifier_kit.concerns import Concern, refusal_of
from amplifier_kit.sandbox.permissions import repository_of
from amplifier_kit.tools.runs import announce

from .launch import Launch
from .running_files import RunningFiles

UNDONE = "tool-bash:undone"

_TOO_LARGE = "the directory is too large for all places that run to be compared"
_MOST_REASONS = 20


@dataclass(slots=True)
class Difference:
    """What is other than before, in the directories of one command; `undone` says it, a sentence for each file."""

    roots: list[Path]
    before: RunningFiles
    after: RunningFiles
    changes: list[str]
    undone: list[str] = field(default_factory=list)

    def shown(self, name: str) -> str:
        path, base = Path(name), self.roots[0]
        return str(path.relative_to(base)) if path.is_relative_to(base) else name

    def reason(self, name: str) -> str:
        return self.before.reason_of(name, self.after)

    def put_back(self) -> dict[str, bool]:
        """Make the files what they were; returns which of them are."""
        return {name: self.before.put_back(name) for name in self.changes}

    def bring_again(self) -> None:
        """Make the files what the command made of them, those that no one has changed since."""
        since = set(self.before.changes(RunningFiles.of(self.roots, self.before)))
        for name in self.changes:
            if name not in since:
                self.after.put_back(name)

    def keep_copies(self, folder: Path) -> None:
        """Keep what the files say now in a folder in which nothing runs."""
        for name in self.changes:
            file = self.after.files.get(name)
            if file is not None and file.content is not None:
                folder.mkdir(mode=0o700, exist_ok=True)
                (folder / quote(self.shown(name), safe="")).write_bytes(file.content)


class Comparison:
    """Compares for the commands of one session; those that overlap, with what was there before the first of them."""

    def __init__(self, coordinator: Any, tool_name: str) -> None:
        self._coordinator, self._tool_name = coordinator, tool_name
        self._comparing, self._running = asyncio.Lock(), 0
        self._before: RunningFiles | None = None
        self._last: RunningFiles | None = None

    async def begin(self, launch: Launch) -> None:
        """Look at the places before a command starts; one `end` or `end_late` follows."""
        async with self._comparing:
            if self._before is None:
                self._before = await asyncio.to_thread(RunningFiles.of, _roots(launch), self._last)
            self._running += 1

    async def end(self, launch: Launch) -> list[str]:
        """Put back what changed unless a person keeps it; returns a sentence for each file."""
        async with self._comparing:
            found = await self._look(launch)
            refusal = await self._refusal(found) if found.changes else None
            if refusal is not None:
                found.undone += await self._undo(found, refusal)
            await self._go_on(found, is_kept=refusal is None)
        return found.undone

    async def end_late(self, launch: Launch, copies: Path) -> Difference:
        """Put back what a command changed that ended while nobody waited for it; copies of it go to a folder.

        A person may be away, so they are asked afterwards, with `brings_again`, while other commands run.
        """
        async with self._comparing:
            found = await self._look(launch)
            if found.changes:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(found.keep_copies, copies)
                found.undone += await self._undo(found, f"what it said is kept in {copies}")
            await self._go_on(found, is_kept=not found.changes)
        return found

    async def brings_again(self, found: Difference) -> bool:
        """Ask whether what was put back is to be kept, and bring it again if it is."""
        if await self._refusal(found) is not None:
            return False
        async with self._comparing:
            await asyncio.to_thread(found.bring_again)
            self._last = None
            if self._running:
                self._before = await asyncio.to_thread(RunningFiles.of, found.roots)
        return True

    async def _look(self, launch: Launch) -> Difference:
        roots, before = _roots(launch), self._before or RunningFiles()
        after = await asyncio.to_thread(RunningFiles.of, roots, before)
        is_complete = before.is_complete and after.is_complete
        return Difference(roots, before, after, before.changes(after), [] if is_complete else [_TOO_LARGE])

    async def _undo(self, found: Difference, why: str) -> list[str]:
        are_back = await asyncio.to_thread(found.put_back)
        await announce(self._coordinator, UNDONE, {"files": [found.shown(name) for name in found.changes]})
        words = {True: "was put back as before", False: "changed and could not be put back"}
        return [
            f"{found.shown(name)} {words[is_back]}: it {found.reason(name)} ({why})"
            for name, is_back in are_back.items()
        ]

    async def _go_on(self, found: Difference, *, is_kept: bool) -> None:
        """Have what is there now be what the commands that still run, or the next one, are compared with."""
        self._running -= 1
        self._last = found.after if is_kept else None
        self._before = None
        if self._running:
            self._before = self._last or await asyncio.to_thread(RunningFiles.of, found.roots, found.before)

    async def _refusal(self, found: Difference) -> str | None:
        """Ask whether changes are kept, all of them in one question; returns why not."""
        subject = ", ".join(map(found.shown, found.changes))
        reasons = "; ".join(f"{found.shown(name)} {found.reason(name)}" for name in found.changes[:_MOST_REASONS])
        concern = Concern("place", subject, f"the command changed what runs elsewhere: {reasons}")
        return await refusal_of(self._coordinator, concern, self._tool_name)


def _roots(launch: Launch) -> list[Path]:
    working_dir = launch.confinement.working_dir
    return [working_dir, *repository_of(working_dir)]
