"""Bundles kept in memory or on disk, for applications that load the same ones again and again."""

from .disk import DiskCache
from .protocol import CacheProviderProtocol
from .simple import SimpleCache

__all__ = ["CacheProviderProtocol", "DiskCache", "SimpleCache"]
