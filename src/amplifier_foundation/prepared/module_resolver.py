"""Where the modules of a prepared bundle are, for the kernel's loader."""

import asyncio
from pathlib import Path
from typing import Any

from amplifier_core.boundary import raised_as
from amplifier_core.local_sources import path_of_source
from amplifier_core.module_sources import ModuleNotFoundError as ModuleNotFound
from amplifier_foundation.modules import ModuleActivator
from amplifier_foundation.modules.activator import is_installed_package


class SourceNotActivated(ModuleNotFound):
    """The source that a plan names for a module cannot be used; no installed module takes its place."""

    names_source = True


class BundleModuleSource:
    """The place of one module; `reference` is what the plan says about it, if that is not a path."""

    def __init__(self, path: Path, reference: str = "") -> None:
        self.path, self.reference = path, reference

    def resolve(self) -> Path:
        return self.path


class BundleModuleResolver:
    """Knows the folders of activated modules; with an activator it activates others when they are first asked for."""

    def __init__(self, module_paths: dict[str, Path], activator: ModuleActivator | None = None) -> None:
        self._paths = module_paths
        self._activator = activator
        self._activating = asyncio.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_activating"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._activating = asyncio.Lock()

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> BundleModuleSource:
        """Return a known module's source.

        Raises:
            ModuleNotFoundError: the kernel's; it then tries what is installed, unless a hint named a source.
        """
        if module_id not in self._paths:
            raise self._missing(module_id, profile_hint or source_hint)
        return BundleModuleSource(self._paths[module_id], _reference(profile_hint or source_hint))

    async def async_resolve(
        self, module_id: str, source_hint: Any = None, profile_hint: Any = None
    ) -> BundleModuleSource:
        """Return a module's source, activating it from the hint if it is not known. `profile_hint` is the older name.

        Raises:
            ModuleNotFoundError: the kernel's; it then tries what is installed, unless a hint named a source.
        """
        hint = profile_hint or source_hint
        if module_id not in self._paths:
            if self._activator is None or not hint:
                raise await asyncio.to_thread(self._missing, module_id, hint)
            async with self._activating:
                await self._activate(self._activator, module_id, hint)
        return BundleModuleSource(self._paths[module_id], _reference(hint))

    def get_module_source(self, module_id: str) -> str | None:
        """Return the folder of a known module as text."""
        path = self._paths.get(module_id)
        return None if path is None else str(path)

    async def _activate(self, activator: ModuleActivator, module_id: str, hint: Any) -> None:
        if module_id in self._paths:
            return
        if await asyncio.to_thread(is_installed_package, hint):
            raise ModuleNotFound(f"Module '{module_id}' has no folder: {hint!r} is an installed package")
        reason = activator.find_failure(module_id, hint) if _remembers(activator, hint) else None
        if reason is not None:
            raise SourceNotActivated(
                f"Module '{module_id}' cannot be activated from {hint!r}, as before: {reason}\n"
                "  fix: correct that and prepare the bundle again"
            )
        message = f"Module '{module_id}' cannot be activated from {hint!r}"
        with raised_as(lambda error: SourceNotActivated(f"{message}: {error}")):
            self._paths[module_id] = await activator.activate(module_id, hint)

    def _missing(self, module_id: str, hint: Any) -> ModuleNotFound:
        known = ", ".join(sorted(self._paths)) or "none"
        kind = SourceNotActivated if hint and not is_installed_package(hint) else ModuleNotFound
        return kind(f"Module '{module_id}' is not among the bundle's activated modules ({known})")


def _reference(hint: Any) -> str:
    """Return a source that leads into a cache as it was written; a path says itself where the module is."""
    return hint if isinstance(hint, str) and path_of_source(hint) is None else ""


def _remembers(activator: Any, hint: Any) -> bool:
    """Say whether failures are known: an application may have an activator of its own kind."""
    return isinstance(activator, ModuleActivator) and isinstance(hint, str)
