"""The bundles that are registered in a home by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_foundation.registry import BundleRegistry
    from amplifier_foundation.sources import Progress
    from amplifierd.paths import Paths
    from amplifierd.settings import Settings

_ECOSYSTEM = "git+https://github.com/microsoft/amplifier"

WELL_KNOWN = {
    "foundation": f"{_ECOSYSTEM}-foundation@main",
    "anchors": f"{_ECOSYSTEM}-foundation@main#subdirectory=bundles/anchors.md",
    **{
        name: f"{_ECOSYSTEM}-bundle-{name}@main"
        for name in ("design-intelligence", "modes", "notify", "recipes", "routing-matrix", "skills")
    },
}
"""What published bundles include by name and expect an application to know; one of your own of that name counts."""


def open_bundles(
    paths: Paths, settings: Settings, progress: Progress | None = None, *, strict: bool = False
) -> BundleRegistry:
    """Return the registry of a home, as it is stored now; with `strict` an include that fails is an error."""
    from amplifier_foundation.registry import BundleRegistry  # few sessions are made from bundles

    return BundleRegistry(
        home=paths.state,
        cache_dir=paths.cache,
        progress=progress,
        offline=settings.offline,
        strict=strict,
        well_known=WELL_KNOWN,
    )
