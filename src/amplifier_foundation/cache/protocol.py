"""What a cache of bundles offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle


class CacheProviderProtocol(Protocol):
    """Keeps loaded bundles by key."""

    def get(self, key: str) -> Bundle | None: ...

    def set(self, key: str, bundle: Bundle) -> None: ...

    def clear(self) -> None: ...
