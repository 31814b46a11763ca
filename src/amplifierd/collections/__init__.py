"""Collections: named sources of profiles, registered, fetched, extracted and kept in step."""

from .models import AddResult, Collection, CollectionProfile, CollectionRoot, Inventory, SyncResult
from .service import Collections

__all__ = ["AddResult", "Collection", "CollectionProfile", "CollectionRoot", "Collections", "Inventory", "SyncResult"]
