"""Many sessions on three machines, to which something happens all the time; then a look at what is left.

python tests/soak cluster_soak --sessions 200 --minutes 10
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from cluster_load import Load
from cluster_machine import ClusterMachine
from cluster_place import ClusterPlace

_LONGEST_S = 15.0
_REST_S = 4.0
_BETWEEN_S = 3.0


class Faults:
    """What may happen, each time to a machine, or a database, of chance. All is well again when a call returns."""

    def __init__(self, place: ClusterPlace, chance: random.Random) -> None:
        self._place, self._chance = place, chance
        self.met: Counter[str] = Counter()

    async def one(self) -> None:
        fault = self._chance.choice(FAULTS)
        self.met[fault.__name__] += 1
        await fault(self)

    async def power_failure(self) -> None:
        machine = self._machine()
        await asyncio.to_thread(machine.lose_power)
        await self._while()
        await asyncio.to_thread(machine.start)

    async def freeze(self) -> None:
        machine = self._machine()
        await asyncio.to_thread(machine.freeze)
        await self._while()
        await asyncio.to_thread(machine.thaw)

    async def partition(self) -> None:
        machine = self._machine()
        for proxy in machine.proxies:
            proxy.stop()
        await self._while()
        for proxy in machine.proxies:
            proxy.go()

    async def cut_connections(self) -> None:
        for machine in self._place.machines:
            for proxy in machine.proxies:
                proxy.cut()

    async def restart_database(self) -> None:
        await asyncio.to_thread(self._place.databases.restart)

    async def fail_over(self) -> None:
        await asyncio.to_thread(self._place.add_standby)
        await asyncio.sleep(self._chance.uniform(0, _BETWEEN_S))
        await asyncio.to_thread(self._place.databases.promote)

    async def replace(self) -> None:
        machine = self._machine()
        await asyncio.to_thread(machine.drain)
        await asyncio.to_thread(machine.stop)
        await asyncio.to_thread(machine.start)

    async def stop_and_start(self) -> None:
        machine = self._machine()
        await asyncio.to_thread(machine.stop)
        await asyncio.to_thread(machine.start)

    def _machine(self) -> ClusterMachine:
        return self._chance.choice(self._place.machines)

    async def _while(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.2, _LONGEST_S))


FAULTS: Sequence[Callable[[Faults], Awaitable[None]]] = (
    Faults.power_failure,
    Faults.freeze,
    Faults.partition,
    Faults.cut_connections,
    Faults.restart_database,
    Faults.fail_over,
    Faults.replace,
    Faults.stop_and_start,
)


async def soak(sessions: int, minutes: float, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Return what happened, and what was looked at afterwards."""
    async with ClusterPlace(seed=seed) as place:
        faults = Faults(place, random.Random(seed))
        async with Load(place, "soak", sessions, rest_s=_REST_S):
            until = time.monotonic() + 60 * minutes
            while time.monotonic() < until:
                await asyncio.sleep(place.chance.uniform(0, _BETWEEN_S))
                await faults.one()
        return faults.met, await place.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left running
    met, counted = asyncio.run(soak(given.sessions, given.minutes, given.seed))
    sys.stdout.write(f"{given.sessions} sessions for {given.minutes:g} minutes, seed {given.seed}\n")
    for what, number in (*sorted(met.items()), *sorted(counted.items())):
        sys.stdout.write(f"  {number:7} {what}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
