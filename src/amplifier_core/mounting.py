"""What one module does to a session while it mounts, so that exactly that can be taken back.

A module that fails after it began to mount must leave nothing behind, and what others do meanwhile must stay: the
application, the background tasks of other modules. So every change is noted with the module in whose context it is
made; a task that a module starts belongs to that module.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from .boundary import Boundary, settle

logger = logging.getLogger(__name__)

SLOTS = frozenset({"orchestrator", "context", "module-source-resolver"})
COLLECTIONS = frozenset({"providers", "tools"})

Cleanup = Callable[[], object]
"""What a module wants to have called at the end; what it returns is awaited if it can be."""

_ABSENT: Any = object()
_current: ContextVar["Mounting | None"] = ContextVar("amplifier_core.mounting", default=None)


class Step(Protocol):
    """Something a module did."""

    def undo(self) -> None:
        """Take it back, unless it has been changed again since."""


def current_mounting() -> "Mounting | None":
    """Return the mounting that the running code is part of."""
    mounting = _current.get()
    return mounting if mounting is not None and mounting.is_open else None


class Change(NamedTuple):
    """One key of a dict: what was there before and after, and for a key that was taken out the order of all."""

    mapping: dict[str, Any]
    key: str
    before: object
    after: object
    order: tuple[str, ...] = ()

    @property
    def is_visible(self) -> bool:
        """True if something new is there and has stayed."""
        after = self.after
        if after is None or after is _ABSENT or after is self.before:
            return False
        return self.mapping.get(self.key, _ABSENT) is after

    def undo(self) -> None:
        if self.mapping.get(self.key, _ABSENT) is not self.after:
            return
        if self.before is _ABSENT:
            dict.pop(self.mapping, self.key, None)
            return
        dict.__setitem__(self.mapping, self.key, self.before)
        if self.after is _ABSENT:
            known = {key: self.mapping[key] for key in self.order if key in self.mapping}
            contents = {**known, **self.mapping}
            dict.clear(self.mapping)
            dict.update(self.mapping, contents)


class NotedDict(dict[str, Any]):
    """A dict whose changes are noted for the module that makes them; modules also write to mount points directly."""

    __slots__ = ()

    def __setitem__(self, key: str, value: object) -> None:
        if mounting := current_mounting():
            mounting.note(Change(self, key, self.get(key, _ABSENT), value))
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        if (mounting := current_mounting()) and key in self:
            mounting.note(Change(self, key, self[key], _ABSENT, tuple(self)))
        super().__delitem__(key)

    def pop(self, key: str, default: object = _ABSENT) -> Any:
        if key not in self and default is not _ABSENT:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self))
        return key, self.pop(key)

    def setdefault(self, key: str, default: object = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def update(self, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc,override] # dict has several
        self.update(other)
        return self


class Mounting:
    """One module's mounting on one coordinator: `async with` it; an error takes back what the module did."""

    __slots__ = (
        "_cleanups",
        "_coordinator",
        "_handlers",
        "_parent",
        "_points",
        "_snapshot",
        "_steps",
        "_token",
        "is_open",
        "is_required",
    )

    def __init__(self, coordinator: Any, *, is_required: bool = False) -> None:
        self.is_required = is_required
        self._coordinator = coordinator
        self._points = _noted_points(coordinator)
        self._snapshot = {} if self._points is not None else _snapshot(coordinator)
        self._steps: list[Step] = []
        self._handlers: list[Callable[[], bool]] = []
        self._cleanups: list[tuple[list[Cleanup], Cleanup]] = []
        self._parent: Mounting | None = None
        self._token: Token[Mounting | None] | None = None
        self.is_open = False

    async def __aenter__(self) -> Self:
        self._parent = current_mounting()
        self._token = _current.set(self)
        self.is_open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_open = False
        if self._token is not None:
            _current.reset(self._token)
        try:
            if exc is not None:
                await self._take_back()
            elif self._parent is not None and self._parent.is_open:
                self._parent._steps += self._steps  # what a module mounts itself is part of what it does
                self._parent._cleanups += self._cleanups
        finally:  # a task that the module started may live on, with this in its context
            self._steps, self._handlers, self._cleanups, self._snapshot = [], [], [], {}
            self._coordinator = self._points = self._parent = self._token = None

    def note(self, step: Step) -> None:
        self._steps.append(step)

    def note_handler(self, step: Step, is_live: Callable[[], bool]) -> None:
        self._steps.append(step)
        self._handlers.append(is_live)

    def note_cleanup(self, registered: list[Cleanup], cleanup: Cleanup) -> None:
        self._cleanups.append((registered, cleanup))

    def mounted(self, mount_point: str) -> dict[str, Any]:
        """Return what the module put at a mount point, or replaced there, by name; a slot's has the slot's name."""
        if self._points is None:
            known = self._snapshot.get(mount_point, {})
            now = _occupants(self._coordinator, mount_point)
            return {name: module for name, module in now.items() if known.get(name) is not module}
        mapping = self._points if mount_point in SLOTS else self._points.get(mount_point)
        return {
            step.key: step.after
            for step in self._steps
            if isinstance(step, Change) and step.mapping is mapping and step.is_visible
            if mount_point in COLLECTIONS or step.key == mount_point
        }

    def has_mounted(self, module: object) -> bool:
        """True if `module` is among what was mounted."""
        return any(module is other for point in (*SLOTS, *COLLECTIONS) for other in self.mounted(point).values())

    def has_handlers(self) -> bool:
        """True if a handler that the module registered is still there."""
        return any(is_live() for is_live in self._handlers)

    async def _take_back(self) -> None:
        """Run the module's cleanups, last one first, then undo the rest in the same order."""
        try:
            await run_cleanups(self._next_cleanup)
        finally:
            for step in reversed(self._steps):
                step.undo()
            for mount_point, known in self._snapshot.items():
                _refill(self._coordinator, mount_point, known)

    def _next_cleanup(self) -> Cleanup | None:
        while self._cleanups:
            registered, cleanup = self._cleanups.pop()
            for index in reversed(range(len(registered))):
                if registered[index] is cleanup:
                    del registered[index]
                    return cleanup
        return None


async def run_cleanups(take: Callable[[], Cleanup | None]) -> None:
    """Call what `take` hands out until there is no more; errors are logged and the rest still run."""
    interruption: BaseException | None = None
    while (cleanup := take()) is not None:
        # The session ends whatever a module does; what is not an error of its own is raised when all have run.
        with Boundary(logger, "Error during cleanup: %s", level=logging.ERROR, catches=BaseException) as boundary:
            await settle(cleanup())
        if interruption is None and not isinstance(boundary.error, Exception):
            interruption = boundary.error
    if interruption is not None:
        raise interruption


def _noted_points(coordinator: object) -> NotedDict | None:
    """Return the mount points if they note their changes; those of a stand-in do not."""
    points = getattr(coordinator, "mount_points", None)
    if not isinstance(points, NotedDict):
        return None
    for point in COLLECTIONS:
        if not isinstance(points.get(point), NotedDict):
            return None
    return points


def _snapshot(coordinator: Any) -> dict[str, dict[str, Any]]:
    return {point: dict(_occupants(coordinator, point)) for point in (*SLOTS, *COLLECTIONS)}


def _occupants(coordinator: Any, mount_point: str) -> dict[str, Any]:
    """Return what is mounted there by name, as far as a stand-in for a coordinator tells."""
    found = None
    with Boundary(logger, "the coordinator has no mount point %r: %s", mount_point, level=logging.DEBUG):
        found = coordinator.get(mount_point)
    if mount_point in COLLECTIONS:
        return found if isinstance(found, dict) else {}
    return {} if found is None else {mount_point: found}


def _refill(coordinator: Any, mount_point: str, known: dict[str, Any]) -> None:
    """Give a stand-in's mount point the contents and the order it had."""
    live = _occupants(coordinator, mount_point)
    points = getattr(coordinator, "mount_points", None)
    if mount_point in COLLECTIONS:
        live.clear()
        live.update(known)
    elif live != known and isinstance(points, dict) and mount_point in points:
        points[mount_point] = known.get(mount_point)
