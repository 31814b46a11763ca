"""From a bundle to a prepared one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.boundary import raised_as
from amplifier_core.local_sources import path_of_source
from amplifier_core.module_sources import ModuleNotFoundError as ModuleNotFound
from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.bundle.bundle_file import find_gaps, sourced_entries
from amplifier_foundation.exceptions import BundleValidationError
from amplifier_foundation.modules import ModuleActivationError, ModuleActivator
from amplifier_foundation.modules.activator import ProgressCallback, is_installed_package

from .prepared_bundle import PreparedBundle

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle

logger = logging.getLogger(__name__)


async def prepare_bundle(
    bundle: Bundle,
    *,
    install_deps: bool = True,
    source_resolver: Callable[[str, str], str] | None = None,
    progress_callback: ProgressCallback | None = None,
    strict: bool = False,
    cache_dir: Path | None = None,
    offline: bool | None = None,
) -> PreparedBundle:
    """Activate the bundle's own packages, then every module it and its agents name with a source.

    Raises:
        ModuleActivationError: something failed and `strict` is set; otherwise it is logged and missing.
        BundleValidationError: an agent, context file or mentioned file is not there and `strict` is set.
    """
    await _report_gaps(bundle, strict=strict)
    await asyncio.to_thread(bundle.load_agent_metadata)
    mount_plan = bundle.to_mount_plan()
    installed = await asyncio.to_thread(lambda: list(_installed_modules(mount_plan)))
    activator = ModuleActivator(cache_dir, install_deps, bundle.base_path, strict, offline=offline, installed=installed)
    if install_deps:
        await _activate_packages(bundle, activator, progress_callback)
    entries = [(entry.module_id, entry.source) for entry in sourced_entries(mount_plan)]
    if source_resolver is not None:
        entries = [(module_id, source_resolver(module_id, source)) for module_id, source in entries]
    entries = await asyncio.to_thread(_to_activate, entries)
    modules = [
        {"module": module_id, "source": source}
        for place, (module_id, source) in enumerate(entries, start=1)
        if (module_id, source) not in entries[place:]
    ]
    paths = await activator.activate_all(modules, progress_callback)
    activator.finalize()
    return PreparedBundle(
        mount_plan,
        BundleModuleResolver(paths, activator),
        bundle,
        activator.bundle_package_paths,
        _import_paths=activator.import_paths,
    )


async def _report_gaps(bundle: Bundle, *, strict: bool) -> None:
    gaps = await asyncio.to_thread(find_gaps, bundle, is_complete=True)
    if gaps and strict:
        raise BundleValidationError(f"bundle {bundle.name!r}: {'; '.join(gaps)}")
    for gap in gaps:
        if gap not in bundle._reported_gaps:
            logger.warning("bundle %r: %s", bundle.name, gap)


async def _activate_packages(
    bundle: Bundle, activator: ModuleActivator, progress_callback: ProgressCallback | None
) -> None:
    places = (bundle.base_path, *bundle.source_base_paths.values())
    for path in dict.fromkeys(place for place in places if place):
        try:
            await activator.activate_bundle_package(path, progress_callback)
        except Exception as error:
            if activator.strict:
                raise ModuleActivationError(
                    f"the package of the bundle in {path} failed to activate: {error}"
                ) from error
            logger.warning("the package of the bundle in %s is not activated: %s", path, error, exc_info=True)


def _installed_modules(mount_plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the modules that the session and its agents take from the host."""
    whole = MountPlan(mount_plan)
    for part in (whole, *(overlay for _, overlay in whole.overlays())):
        for entry in part.entries():
            if not entry.source or is_installed_package(entry.source):
                yield entry.module_id


def _to_activate(entries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the entries whose source is not an installed package: the kernel finds those by itself."""
    return [(module_id, source) for module_id, source in entries if not is_installed_package(source)]


# Where the modules of a prepared bundle are, for the kernel's loader.


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
        if hint and not is_installed_package(hint):
            return SourceNotActivated(f"Module '{module_id}' is not among the bundle's activated modules ({known})")
        return ModuleNotFound(
            f"Module '{module_id}' is not installed, and not among the bundle's activated modules ({known})\n"
            "  fix: give it a source where it is named, for example git+https://host/org/repo@v1"
        )


def _reference(hint: Any) -> str:
    """Return a source that leads into a cache as it was written; a path says itself where the module is."""
    return hint if isinstance(hint, str) and path_of_source(hint) is None else ""


def _remembers(activator: Any, hint: Any) -> bool:
    """True if failures are known: an application may have an activator of its own kind."""
    return isinstance(activator, ModuleActivator) and isinstance(hint, str)
