"""One template of workers for all daemons of this process, instead of one for each, which imports everything again."""

import asyncio
from collections.abc import Sequence
from typing import Any

from amplifier_system.processes import ProcessTree
from amplifierd.workers.worker_start import Template

_start = Template.start
_running: dict[tuple[str, ...], Template] = {}  # by what they have imported beside what all templates do


class SharedTemplate:
    """What a daemon has for a template of its own; the real one outlives it."""

    has_forked = True

    def __init__(self, further: tuple[str, ...]) -> None:
        self._further = further

    @classmethod
    async def start(cls, further: Sequence[str]) -> "SharedTemplate":
        key = tuple(further)
        if key not in _running:
            _running[key] = await _start(further)
        return cls(key)

    async def fork(self, *order: Any) -> ProcessTree:
        try:
            return await _running[self._further].fork(*order)
        except OSError:  # it is gone, and the next daemon starts another
            del _running[self._further]
            raise

    async def end(self) -> None:
        pass


def end_shared_templates() -> None:
    """End them when no daemon needs them any more."""
    while _running:
        asyncio.run(_running.popitem()[1].end())
