"""From a bundle to a prepared one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_foundation.bundle.gaps import find_gaps
from amplifier_foundation.bundle.sourced_entries import sourced_entries
from amplifier_foundation.exceptions import BundleValidationError
from amplifier_foundation.modules import ModuleActivationError, ModuleActivator
from amplifier_foundation.modules.activator import ProgressCallback, is_installed_package

from .module_resolver import BundleModuleResolver
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
    activator = ModuleActivator(cache_dir, install_deps, bundle.base_path, strict, offline=offline)
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
        if gap not in bundle._told_gaps:
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


def _to_activate(entries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the entries whose source is not an installed package: the kernel finds those by itself."""
    return [(module_id, source) for module_id, source in entries if not is_installed_package(source)]
