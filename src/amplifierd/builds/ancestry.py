"""The texts of a profile and of everything it may inherit from, brought into the home before they are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from amplifier_core.exceptions import AmplifierError
from amplifierd.documents.document import ProfileDocument
from amplifierd.documents.extends import Extends
from amplifierd.identifiers import ProfileId

from .profile_catalogue import ProfileCatalogue
from .profile_texts import ProfileTexts


async def extract_with_ancestors(catalogue: ProfileCatalogue, texts: ProfileTexts, profile_id: ProfileId) -> None:
    """See to it that the texts of a profile and of its ancestors are in the home.

    Raises:
        RefResolutionError: the profile's collection cannot be obtained; an ancestor's that cannot is skipped.
    """
    seen: set[ProfileId] = set()
    waiting = [profile_id]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        try:
            await catalogue.ensure_profile(each)
        except AmplifierError:
            if each == profile_id:
                raise
        document = await asyncio.to_thread(texts.read, each)
        waiting += _parents_of(catalogue, texts, document) if document is not None else []


def _parents_of(catalogue: ProfileCatalogue, texts: ProfileTexts, document: ProfileDocument) -> Sequence[ProfileId]:
    """Return the profiles that a profile may extend; for a bare name that is not near, those of all collections."""
    extends = Extends.parse(document.extends or "")
    if extends is None:
        return []
    places = extends.places(document.profile_id)
    if extends.collection is not None:
        return places
    if near := [place for place in places if texts.read(place) is not None]:
        return near[:1]
    return [ProfileId(each, extends.name) for each in catalogue.collection_ids()]
