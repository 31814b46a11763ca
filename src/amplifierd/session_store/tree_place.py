"""Where a tree of sessions is, in a store that machines share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TreePlace:
    """Who holds a tree, through its root. The epoch grows with every holder; `member_id` is None without a holder.

    `address` is that of a daemon. A holder that is not `is_live` is gone, and others may take its place.
    """

    epoch: int = 0
    member_id: str | None = None
    address: str | None = None
    is_live: bool = False


NOWHERE = TreePlace()
