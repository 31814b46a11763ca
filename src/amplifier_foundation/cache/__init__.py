"""Bundles kept in memory, for applications that load the same ones again and again."""

from .protocol import CacheProviderProtocol
from .simple import SimpleCache

__all__ = ["CacheProviderProtocol", "SimpleCache"]
