"""The bundles that are registered in a home by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_foundation.registry import BundleRegistry
    from amplifier_foundation.sources import Progress

    from .paths import Paths
    from .settings import Settings


def open_bundles(
    paths: Paths, settings: Settings, progress: Progress | None = None, *, strict: bool = False
) -> BundleRegistry:
    """Return the registry of a home, as it is stored now; with `strict` an include that fails is an error."""
    from amplifier_foundation.registry import BundleRegistry  # few sessions are made from bundles

    return BundleRegistry(
        home=paths.state, cache_dir=paths.cache, progress=progress, offline=settings.offline, strict=strict
    )
