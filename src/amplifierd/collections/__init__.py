"""Collections: named sources of profiles, registered, fetched, extracted and kept in step."""

from amplifierd.builds.catalogue import CollectionRoot

from .home_collections import Collections
from .models import AddResult, Collection, CollectionProfile, Inventory, SyncResult

__all__ = ["AddResult", "Collection", "CollectionProfile", "CollectionRoot", "Collections", "Inventory", "SyncResult"]
