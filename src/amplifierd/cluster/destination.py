"""A member that requests can be sent to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Destination:
    """A member, and where it is reached."""

    member_id: str
    address: str
