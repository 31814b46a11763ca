"""Taking a member out of service while the store fails: nothing is left out, and nothing is done twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from amplifierd.exceptions import MemberFencedError, StoreUnavailableError
from amplifierd.server.membership import Draining

STEPS = ["set_draining", "upkeep", "turns", "live", "release", "leave"]


class Parts:
    """What a daemon consists of that is drained, with what goes wrong there first."""

    def __init__(self, **errors: Exception) -> None:
        self.done: list[str] = []
        self._errors = errors

    def step(self, name: str) -> Callable[[], Awaitable[None]]:
        async def take() -> None:
            if (error := self._errors.pop(name, None)) is not None:
                raise error
            self.done.append(name)

        return take

    def daemon(self) -> SimpleNamespace:
        return SimpleNamespace(
            phase="ready",
            cluster=SimpleNamespace(set_draining=self.step("set_draining"), leave=self.step("leave")),
            upkeep=SimpleNamespace(stop=self.step("upkeep")),
            turns=SimpleNamespace(drain=self.step("turns")),
            live=SimpleNamespace(drain=self.step("live"), release=self.step("release")),
        )


async def test_a_drain_goes_on_when_the_store_is_back() -> None:
    away = StoreUnavailableError("it is away")
    parts = Parts(turns=away, leave=away)
    draining = Draining(parts.daemon())  # type: ignore[arg-type]

    draining.begin()
    draining.begin()
    async with asyncio.timeout(10):
        while parts.done[-1:] != ["leave"]:  # noqa: ASYNC110 - it pauses in between
            await asyncio.sleep(0.01)

    assert parts.done == STEPS
    await draining.stop()


async def test_a_drain_ends_when_the_others_have_taken_everything(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts(turns=MemberFencedError("it was fenced"))
    draining = Draining(parts.daemon())  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING):
        draining.begin()
        async with asyncio.timeout(10):
            while not caplog.records:  # noqa: ASYNC110 - it says so in the log alone
                await asyncio.sleep(0.01)

    assert parts.done == STEPS[:2]
    await draining.stop()
