"""What a cache of bundles offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle


@runtime_checkable
class CacheProviderProtocol(Protocol):
    """Keeps loaded bundles by key."""

    def get(self, key: str) -> Bundle | None: ...

    def set(self, key: str, bundle: Bundle) -> None: ...

    def clear(self) -> None: ...
