"""What a profile extends, as it is written: the one place that reads `extends`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name


@dataclass(frozen=True, slots=True)
class Extends:
    """`name`, `collection/name`, `collection:name` or `collection:profiles/name.md`; without a collection, the nearest.

    A bare name means a profile of the same collection, else one of the user's own, else the only one of that name.
    """

    name: str
    collection: str | None = None

    @classmethod
    def parse(cls, written: str) -> Extends | None:
        """Return what is meant, None when no profile can have such a name."""
        collection, colon, path = written.partition(":")
        if colon:
            written = f"{collection}/{path.removeprefix('profiles/').removesuffix('.md')}"
        if "/" not in written:
            return cls(written) if is_collection_or_profile_name(written) else None
        try:
            exact = ProfileId.parse(written)
        except ValueError:
            return None
        return cls(exact.name, exact.collection)

    def places(self, child: ProfileId) -> Sequence[ProfileId]:
        """Return the one profile that is meant, or for a bare name those that are looked for first."""
        if self.collection is not None:
            return [ProfileId(self.collection, self.name)]
        near = (ProfileId(collection, self.name) for collection in dict.fromkeys((child.collection, LOCAL)))
        return [place for place in near if place != child]
