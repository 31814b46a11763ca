"""The entrance: a crowd of requests comes in a few at a time, in order, and nobody else waits for all of it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from amplifierd.server.http.request_guard import AT_A_TIME, Entrance

CROWD = 5 * AT_A_TIME


async def test_a_crowd_comes_in_a_few_at_a_time_and_in_order() -> None:
    entrance, entered = Entrance(), list[int]()

    async def enter(number: int) -> None:
        await entrance.enter()
        entered.append(number)

    crowd = [asyncio.create_task(enter(number)) for number in range(CROWD)]
    seen = [0]
    while seen[-1] < CROWD:
        await asyncio.sleep(0)
        seen.append(len(entered))
    await asyncio.gather(*crowd)

    assert max(now - before for before, now in pairwise(seen)) == AT_A_TIME
    assert entered == sorted(entered)


async def test_one_after_the_other_nobody_waits() -> None:
    entrance, entered = Entrance(), 0

    for _ in range(CROWD):
        coming_in = asyncio.create_task(entrance.enter())
        await asyncio.sleep(0)
        entered += coming_in.done()
        await asyncio.sleep(0)

    assert entered == CROWD


async def test_who_gives_up_holds_up_nobody() -> None:
    entrance = Entrance()
    crowd = [asyncio.create_task(entrance.enter()) for _ in range(CROWD)]
    await asyncio.sleep(0)

    for leaving in crowd[AT_A_TIME:-1]:
        leaving.cancel()

    await asyncio.wait_for(crowd[-1], 10)
