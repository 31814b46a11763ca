"""A cache of bundles that lives as long as its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle


class SimpleCache:
    """Bundles by key, in a dict."""

    def __init__(self) -> None:
        self._bundles: dict[str, Bundle] = {}

    def get(self, key: str) -> Bundle | None:
        return self._bundles.get(key)

    def set(self, key: str, bundle: Bundle) -> None:
        self._bundles[key] = bundle

    def clear(self) -> None:
        self._bundles.clear()

    def __contains__(self, key: object) -> bool:
        return key in self._bundles
