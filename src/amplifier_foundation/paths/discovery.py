"""Finding files below a folder, and the bundle above one."""

import asyncio
from pathlib import Path

BUNDLE_FILES = ("bundle.md", "bundle.yaml")
"""What a bundle's own folder holds, the preferred name first."""


async def find_files(base: Path, pattern: str, recursive: bool = True) -> list[Path]:
    """Return the paths below `base` that match a glob pattern, sorted."""
    wanted = f"**/{pattern}" if recursive and not pattern.startswith("**") else pattern
    return await asyncio.to_thread(lambda: sorted(base.glob(wanted)))


async def find_bundle_root(start: Path) -> Path | None:
    """Return the nearest folder, `start` itself or above it, that holds a bundle file."""
    return await asyncio.to_thread(_find_bundle_root, start)


def find_bundle_file(directory: Path) -> Path | None:
    """Return the bundle file of a folder: `bundle.md`, else `bundle.yaml`, else `None`."""
    return next((path for name in BUNDLE_FILES if (path := directory / name).is_file()), None)


def _find_bundle_root(start: Path) -> Path | None:
    directory = start.resolve()
    return next((place for place in (directory, *directory.parents) if find_bundle_file(place)), None)
