"""A session that is about to be created: awaited, or entered with `async with`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from amplifier_system.openings import Opening

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession


class SessionOpening(Opening["AmplifierSession"]):
    """What `create_session` returns.

    `session = await opening` gives the initialized session; `async with opening as session:` also cleans it up.
    """

    def __init__(self, opening: Coroutine[Any, Any, AmplifierSession]) -> None:
        super().__init__(opening, lambda session: session.cleanup())
