"""Permission levels: how much an agent may do before a person is asked.

`plan` reads and thinks: nothing is written and nothing executes. `ask` is the usual: what the rules do not approve is
asked about. `edits` lets it edit files in the working directory. `auto` lets it do everything that the sandbox
contains. A level never opens what a rule, the policy or a person has closed, and hosts and places that run are asked
about at every level.

The host registers the capability `session.permissions`, a `Permissions`: it refuses by itself what `plan` forbids, and
the guard, `hooks-approval`, approves by it. A mode narrows it with `narrow`.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

PermissionLevel = Literal["plan", "ask", "edits", "auto"]

LEVELS: tuple[PermissionLevel, ...] = get_args(PermissionLevel)
"""The levels, from the narrowest to the widest."""

DEFAULT_LEVEL: PermissionLevel = "ask"


def is_level(value: Any) -> bool:
    return isinstance(value, str) and value in LEVELS


def narrowest(*levels: PermissionLevel | None) -> PermissionLevel | None:
    """The narrowest of several levels; one that nobody has chosen counts as `ask`, and is None where it wins."""
    return min(levels, key=lambda level: LEVELS.index(level or DEFAULT_LEVEL) * 2 + (level is None), default=None)


def within_default(level: PermissionLevel | None) -> PermissionLevel | None:
    """A level as it counts where no person has chosen it: one that is wider than `ask` is none."""
    return level if narrowest(level, None) == level else None


class Permissions:
    """The permission level of one session: what was chosen for it, within those of the session around it and of modes.

    It is None where nobody has chosen one: then the profile's own rules are all there is.
    """

    def __init__(self, chosen: PermissionLevel | None = None, *, outer: Permissions | None = None) -> None:
        self.chosen = chosen
        self._outer = outer
        self._narrowings: dict[str, PermissionLevel] = {}

    @property
    def level(self) -> PermissionLevel | None:
        """The level that counts now."""
        within = self.chosen
        if self._outer is not None:
            outer = self._outer.level
            within = outer if self.chosen is None else narrowest(outer, self.chosen)
        return narrowest(within, *self._narrowings.values()) if self._narrowings else within

    def narrow(self, by: str, level: PermissionLevel | None) -> None:
        """Let something, a mode for example, narrow the level until it calls this with None."""
        self._narrowings.pop(by, None)
        if level is not None:
            self._narrowings[by] = level


def chosen_level(value: Any) -> PermissionLevel | None:
    """A level that was written somewhere, None for none.

    Raises:
        ValueError: there is no such level.
    """
    if value is None:
        return None
    if not is_level(value):
        raise ValueError(f"there is no permission level {value!r}; there are {', '.join(LEVELS)}")
    return cast(PermissionLevel, value)
