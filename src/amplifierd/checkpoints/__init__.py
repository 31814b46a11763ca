"""Snapshots of a working directory, what changed between them, and the way back. Knows nothing of sessions."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .checkpoints import Checkpoints
    from .records import Changes, Checkpoint, UndoResult

__all__ = ["Changes", "Checkpoint", "Checkpoints", "UndoResult"]

__getattr__ = lazy_names(
    __name__,
    {
        ".checkpoints": ("Checkpoints",),
        ".records": ("Changes", "Checkpoint", "UndoResult"),
    },
)
