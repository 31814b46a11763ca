"""What killed processes left in a home, and in the system's temporary directory; removed when a home is opened."""

from __future__ import annotations

from functools import cache

from amplifier_foundation.modules.scratch import remove_scratch_leftovers
from amplifier_foundation.sources.pruning import remove_leftovers as remove_cache_leftovers
from amplifier_system.files import remove_unfinished

from .paths import Paths


@cache
def remove_leftovers(paths: Paths) -> None:
    """Remove what no one works on any more, once in each process; a few directories are listed, nothing is read."""
    remove_scratch_leftovers()
    if not paths.home.is_dir():
        return
    for directory in (paths.config, paths.share, paths.own_profiles, paths.cache / "git", paths.cache / "env"):
        remove_unfinished(directory)
    remove_cache_leftovers(paths.cache)
