"""Checkpoints around the turns of a session: what a turn did to the working directory can be seen and undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from amplifier_kit.tools.effects import effects_of
from amplifierd.checkpoints import Changes, Checkpoint, Checkpoints, UndoResult
from amplifierd.exceptions import CheckpointError, InvalidTurnError

from .calls import CallLayer, ToolCall, ToolStep

Undone = Literal["files", "conversation", "both"]
Write = Callable[..., Awaitable[Any]]
News = tuple[str, dict[str, Any]]
"""The name and the data of an event."""

BEFORE, AFTER = "before", "after"
DIRECTORY = "checkpoints"

_PATH_ARGUMENTS = ("file_path", "path", "save_to_file")


class TurnCheckpoints(CallLayer):
    """Takes a checkpoint before and after each turn. What cannot be kept is told once, and never ends a turn."""

    def __init__(self, checkpoints: Checkpoints, write: Write) -> None:
        self._checkpoints, self._write = checkpoints, write
        self._reported: set[str] = set()

    async def take(self, turn: int, label: str) -> Checkpoint | CheckpointError:
        """Take a checkpoint, or return why there is none; `news` says so.

        The disk has the one before a turn when its first tool begins, or the turn ends.
        """
        try:
            return await self._checkpoints.take(turn, label=label, lasting=label != BEFORE)
        except CheckpointError as error:
            return error

    def news(self, taken: Checkpoint | CheckpointError) -> list[News]:
        """Return the events that say what was taken, and what is missing from it."""
        if isinstance(taken, CheckpointError):
            return self._missing(taken.message)
        said = {"turn": taken.turn, "label": taken.label, "id": taken.id, "complete": taken.complete}
        return [("checkpoint:taken", said), *([] if taken.complete else self._missing(taken.reason))]

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        """Keep a file that a tool is about to write, where the checkpoint does not have it."""
        if not self._checkpoints.are_lasting:
            await self._try(self._checkpoints.make_lasting())
        if "write" in effects_of(call.tool, call.name):
            for argument in _PATH_ARGUMENTS:
                if isinstance(path := call.input.get(argument), str) and path:
                    await self._try(self._checkpoints.remember(self._absolute(path)))
        return await proceed(call)

    def _absolute(self, path: str) -> Path:
        return self._checkpoints.working_dir / Path(path).expanduser()

    async def _try(self, work: Awaitable[object]) -> None:
        try:
            await work
        except CheckpointError as error:
            for name, data in self._missing(error.message):
                await self._write(name, data)

    def _missing(self, reason: str) -> list[News]:
        if reason in self._reported:
            return []
        self._reported.add(reason)
        return [("checkpoint:incomplete", {"reason": reason})]


async def changes_of(checkpoints: Checkpoints, turn: int) -> Changes:
    """Return what a turn changed in the working directory, until now if it has not ended.

    Raises:
        InvalidTurnError: there is no checkpoint of that turn.
    """
    before, after = _around(checkpoints, turn)
    return await checkpoints.changes(before, after)


async def undo_files(checkpoints: Checkpoints, turn: int, *, force: bool) -> UndoResult:
    """Bring back what a turn changed; files that someone else changed since stop it unless `force` is set.

    Raises:
        InvalidTurnError: there is no checkpoint of that turn.
    """
    before, after = _around(checkpoints, turn)
    if after is None:  # it was interrupted: what is there now is all that is known of its end
        after = await checkpoints.take(turn, label=AFTER)
    return await checkpoints.undo(before, after, force=force)


def _around(checkpoints: Checkpoints, turn: int) -> tuple[Checkpoint, Checkpoint | None]:
    taken = {(checkpoint.turn, checkpoint.label): checkpoint for checkpoint in checkpoints.list()}
    before = taken.get((turn, BEFORE))
    if before is None:
        known = sorted({turn for turn, label in taken if label == BEFORE})
        raise InvalidTurnError(
            f"there is no checkpoint of turn {turn}",
            hint=f"turns with one: {', '.join(map(str, known))}" if known else "no checkpoints were taken",
        )
    return before, taken.get((turn, AFTER)) or taken.get((turn + 1, BEFORE))
