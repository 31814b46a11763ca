"""What all kinds of sources share while they are resolved: the cache, its limits and locks, and who is notified."""

import asyncio
import hashlib
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from weakref import WeakKeyDictionary

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_system.urls import shown

from .resolved import Limits, Phase, Progress, ProgressEvent, report
from .store import locked

OFFLINE_VARIABLE = "AMPLIFIERD_OFFLINE"
UNREACHABLE = ("offline", "timeout")  # reasons that count as being offline, where the cache can answer instead

_TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class CacheContext:
    """One cache and the rules for filling it."""

    cache_dir: Path
    limits: Limits
    offline: bool | None
    allowed_roots: tuple[Path, ...] | None
    progress: Progress | None

    @cached_property
    def real_cache_dir(self) -> Path:
        """The directory without links, as it was when this was first asked."""
        return Path(os.path.realpath(self.cache_dir))

    def is_offline(self) -> bool:
        """True if the network may not be used at all; without a setting the environment decides, at every call."""
        if self.offline is not None:
            return self.offline
        return os.environ.get(OFFLINE_VARIABLE, "").strip().lower() in _TRUE

    def check_allowed(self, path: Path, ref: str) -> None:
        """Raise `RefResolutionError` (`unsafe-path`) for a local path outside the allowed roots."""
        if self.allowed_roots is None:
            return
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(root) for root in self.allowed_roots):
            roots = ", ".join(map(str, self.allowed_roots)) or "none"
            raise RefResolutionError(f"{path} is outside the allowed directories ({roots})", ref, "unsafe-path")

    def locked(self, key: str, ref: str) -> AbstractAsyncContextManager[None]:
        """Return the lock of a cache entry, for `async with`."""
        return locked(
            self.cache_dir / "locks" / f"{key}.lock",
            ref=shown(ref),
            timeout_s=self.limits.lock_timeout_s,
            on_wait=lambda: self.tell(ref, "waiting"),
        )

    def tell(self, ref: str, phase: Phase, size: int | None = None, total: int | None = None, detail: str = "") -> None:
        if self.progress is not None:
            report(self.progress, ProgressEvent("source", shown(ref), phase, size, total, detail))


class Slots:
    """At most so many at a time, in each event loop."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def here(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = asyncio.Semaphore(self._count)
        return self._loops[loop]


def not_cached(ref: str) -> RefResolutionError:
    """Return the error for a reference that is not in the cache while there is no network."""
    return RefResolutionError(f"offline, and {shown(ref)} is not in the cache", ref, "offline", hint=fetch_hint(ref))


def fetch_hint(ref: str) -> str:
    """Return what to do when a reference is not in the cache and its server cannot be reached."""
    command = f"amplifier source fetch {shlex.quote(shown(ref))}"
    return f"check the address and the network, or fetch it while online: {command}"


def key_of(*parts: str | None) -> str:
    """Return a short name for a lock."""
    return hashlib.sha256("\0".join(part or "" for part in parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def find_subpath(root: Path, subpath: str | None, ref: str, *, missing: Sequence[str] = ()) -> Path:
    """Return the path below `root`; `missing` names directories that are known to be left out of it.

    Raises:
        RefResolutionError: with reason `subpath-missing`, or `unsafe-path` when it leads out of `root`.
    """
    if subpath is None:
        return root
    path = root / subpath
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise RefResolutionError(f"Subpath not found: {subpath!r} leads out of {shown(ref)}", ref, "unsafe-path")
    if not root.is_dir() or not path.exists():
        left_out = next((name for name in missing if subpath == name or subpath.startswith(f"{name}/")), None)
        why = f"; {left_out!r} is a submodule, and submodules are not fetched" if left_out else ""
        raise RefResolutionError(f"Subpath not found: {subpath!r} in {shown(ref)}{why}", ref, "subpath-missing")
    return path
