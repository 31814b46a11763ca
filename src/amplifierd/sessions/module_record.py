"""What a session's modules know of it: in its record a name, a description and the mode; its modes and its skills."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amplifier_core import ModuleCoordinator
from amplifier_core.exceptions import AmplifierError
from amplifierd.exceptions import SessionStateError

if TYPE_CHECKING:
    from .runner import ExecutionRunner

CAPABILITY = "session.record"

_SKILLS = "skills_discovery"

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


def modes_of(coordinator: ModuleCoordinator) -> dict[str, Any]:
    """The mode that is on, with what it allows, and those that there are; empty in a session without modes."""
    hooks = coordinator.session_state.get("mode_hooks")
    if hooks is None:
        return {"active_mode": None, "modes": []}
    mode = hooks.active
    listed = [each._asdict() for each in hooks.discovery.list_modes()]
    if mode is None:
        return {"active_mode": None, "modes": listed}
    policy = {**mode.summary(), "permissions": mode.permissions, "unknown_tools": hooks.unknown_tools(mode)}
    return {"active_mode": mode.name, "modes": listed, "policy": policy}


async def choose_mode(coordinator: ModuleCoordinator, name: str | None) -> dict[str, Any]:
    """Enter a mode, or leave the one that is on.

    Raises:
        SessionStateError: the session has no modes, none of that name, or one that cannot work in it.
    """
    hooks = coordinator.session_state.get("mode_hooks")
    if name is None:
        if hooks is not None:
            await hooks.clear()
        return modes_of(coordinator)
    if hooks is None:
        raise SessionStateError("this session has no modes", hint="add hooks-mode to its profile")
    try:
        await hooks.activate(name)
    except AmplifierError as error:
        raise SessionStateError(error.message, hint="list the modes that there are") from error
    return modes_of(coordinator)


async def skills_of(coordinator: ModuleCoordinator) -> dict[str, Any]:
    """The skills that a session can load, and all that is wrong with skills; empty in a session without them."""
    discovery = coordinator.get_capability(_SKILLS)
    if discovery is None:
        return {"skills": [], "diagnostics": []}
    return await asyncio.to_thread(_look_for_skills, discovery)


def _look_for_skills(discovery: Any) -> dict[str, Any]:
    diagnostics = [each.to_dict() for each in getattr(discovery, "diagnostics", ())]
    found = [(name, description, discovery.find(name)) for name, description in discovery.list_skills()]
    skills = [
        {
            "name": name,
            "description": description,
            "source": str(getattr(skill, "source", "")),
            "is_fork": getattr(skill, "context", None) == "fork",
            "shortcut": getattr(skill, "shortcut", None),
            "trusted": getattr(skill, "trusted", False) is True,
            "diagnostics": [each for each in diagnostics if each["path"] == str(getattr(skill, "path", None))],
        }
        for name, description, skill in found
    ]
    return {"skills": skills, "diagnostics": diagnostics}
