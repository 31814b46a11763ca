"""The part of a session's record that its modules keep: its name and description, and the mode that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runner import ExecutionRunner

CAPABILITY = "session.record"

_FOR_MODULES = frozenset(
    {"name", "name_generated_at", "description", "description_updated_at", "active_mode", "mode_policy"}
)


class ModuleRecord:
    """What the capability `session.record` offers. It can be read whole and written in part.

    Writing is a step of its own: with `expected` it is done only while these fields have these values, so that what a
    person or another module stored meanwhile is never replaced.
    """

    def __init__(self, runner: ExecutionRunner) -> None:
        self._runner = runner

    @property
    def is_root(self) -> bool:
        return self._runner.is_root and self._runner.record.parent_session_id is None

    def get(self, name: str) -> Any:
        """Return a field of the record, None when it has none of that name."""
        return self._runner.record.fields().get(name)

    async def set(self, expected: Mapping[str, Any] | None = None, **changes: Any) -> bool:
        """Store fields; returns whether that was done.

        Raises:
            KeyError: a field is not for modules to write.
            SessionStateError: a value cannot be used.
            HoldLostError: another process has taken the session over.
        """
        if foreign := changes.keys() - _FOR_MODULES:
            raise KeyError(f"modules do not write {', '.join(sorted(foreign))}")
        if any(self.get(name) != value for name, value in (expected or {}).items()):
            return False
        if any(self.get(name) != value for name, value in changes.items()):
            await self._runner.change(**changes)
        return True
