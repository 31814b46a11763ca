"""The modes of a session, as its module `hooks-mode` keeps them: shown, entered and left as a person does."""

from __future__ import annotations

from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.exceptions import describe
from amplifierd.exceptions import SessionStateError


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
    except Exception as error:
        raise SessionStateError(describe(error), hint="list the modes that there are") from error
    return modes_of(coordinator)
