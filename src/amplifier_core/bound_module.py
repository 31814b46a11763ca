"""A module with its configuration: what a load hands over, ready to be mounted on a coordinator."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

from .coordinator import ModuleCoordinator
from .loaded_module import LoadedModule, ReadyCallback, check_mounted
from .mounting import Mounting

Discard = Callable[[LoadedModule], None]


class BoundModule(partial[Coroutine[Any, Any, Any]]):
    """A coroutine function that mounts the module on a coordinator; when that fails it leaves nothing behind.

    It has `__on_session_ready__`, the module's ID and a function, when the module wants to hear that all are mounted.
    """

    __on_session_ready__: tuple[str, ReadyCallback]

    def __new__(cls, loaded: LoadedModule, config: Mapping[str, Any], discard: Discard) -> Self:
        bound = super().__new__(cls, _mount, loaded, config, discard)
        bound.__module__ = getattr(loaded.mount, "__module__", None) or __name__
        if loaded.on_session_ready is not None:
            bound.__on_session_ready__ = (loaded.module_id, loaded.on_session_ready)
        return bound

    async def mount_within(self, mounting: Mounting, coordinator: ModuleCoordinator) -> Any:
        """Mount the module as part of a mounting that has more to do afterwards, and takes back all or nothing."""
        loaded, config, discard = self.args
        return await _mount_within(mounting, loaded, config, discard, coordinator)


class _Use(NamedTuple):
    """One instance of a module in a session; the loader forgets a module that has none."""

    loaded: LoadedModule
    discard: Discard

    def undo(self) -> None:
        self.loaded.mounted -= 1
        self.discard(self.loaded)


async def _mount(
    loaded: LoadedModule, config: Mapping[str, Any], discard: Discard, coordinator: ModuleCoordinator
) -> Any:
    async with Mounting(coordinator) as mounting:
        return await _mount_within(mounting, loaded, config, discard, coordinator)


async def _mount_within(
    mounting: Mounting,
    loaded: LoadedModule,
    config: Mapping[str, Any],
    discard: Discard,
    coordinator: ModuleCoordinator,
) -> Any:
    loaded.mounted += 1
    mounting.note(_Use(loaded, discard))
    returned = await loaded.mount(coordinator, config)
    if loaded.folder is not None and isinstance(coordinator, ModuleCoordinator):
        check_mounted(loaded, mounting, coordinator, returned)
    return returned
