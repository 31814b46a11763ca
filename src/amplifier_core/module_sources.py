"""Where modules come from is the application's policy; these are the contracts it fulfils.

An application mounts a `ModuleSourceResolver` at `module-source-resolver`; the loader asks it for each module id
and receives a `ModuleSource`, which knows the folder.
"""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .exceptions import ModuleLoadError, ModuleNotFoundError

__all__ = [
    "FileSystemModuleSource",
    "ModuleLoadError",
    "ModuleNotFoundError",
    "ModuleSource",
    "ModuleSourceResolver",
]


@runtime_checkable
class ModuleSource(Protocol):
    """One module's place.

    It may also have `reference`, what a person wrote to say where the module comes from, and `advise(error)`, which
    returns what to do about an `ImportError` or None; errors of the loader then say that.
    """

    def resolve(self) -> Path:
        """Return the folder that holds the module's package, or raise `ModuleNotFoundError`."""
        ...


@runtime_checkable
class ModuleSourceResolver(Protocol):
    """Module id (and the plan's `source`) → module source.

    A resolver that has to wait offers `async_resolve` with the same parameters; it is then preferred.
    """

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource:
        """Return the source of `module_id`, or raise `ModuleNotFoundError`; both hints carry the plan's `source`."""
        ...


class FileSystemModuleSource:
    """A fixed list of folders that hold modules, with the mention prefixes they answer to."""

    def __init__(self, paths: list[str] | None = None) -> None:
        self._paths = list(paths or [])
        self._mention_mappings: dict[str, str] = {}

    def get_module_paths(self) -> list[str]:
        return list(self._paths)

    def get_mention_mappings(self) -> dict[str, str]:
        return dict(self._mention_mappings)
