"""Snapshots of a working directory, what changed between them, and the way back. Knows nothing of sessions."""

from .checkpoints import Checkpoints
from .records import Checkpoint
from .results import Changes, UndoResult

__all__ = ["Changes", "Checkpoint", "Checkpoints", "UndoResult"]
