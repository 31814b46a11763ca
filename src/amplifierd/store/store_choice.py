"""Which store a home's sessions are in."""

from __future__ import annotations

from amplifierd.exceptions import SettingsError
from amplifierd.paths import Paths
from amplifierd.store_address import StoreAddress

from .file_store import FileStore
from .protocol import SessionStore


def store_modules(address: StoreAddress) -> tuple[str, ...]:
    """Return the modules that using a store imports late."""
    return () if address.is_files else ("amplifierd.store.postgres.store",)


def open_store(paths: Paths, address: StoreAddress, *, program: str = "library") -> SessionStore:
    """Return the store at an address; nothing is created, read or connected to yet.

    Raises:
        SettingsError: what it needs is not installed.
    """
    if address.is_files:
        return FileStore(paths)
    try:
        from amplifierd.store.postgres.store import PostgresStore  # an extra, which only such a store needs
    except ImportError as error:
        raise SettingsError(
            f"store: sessions in {address} need the package {error.name}", hint="pip install 'amplifier[postgres]'"
        ) from error
    return PostgresStore(paths, address, program=program)
