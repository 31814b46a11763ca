"""What may happen to a cluster, one thing after the other, while sessions are at work; then a look at what is left.

    python tests/soak cluster_gate --rounds 100

A machine loses its power, is frozen and wakes up, loses its way to the database; the database is restarted, and its
standby takes its place; all machines are replaced one after the other. One of them has a clock that is an hour ahead.
Each round has one of these scenes, and a look at everything that belongs to it; they take turns. A takeover that takes
longer than ten seconds is a failure: this needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, cycle, islice
from statistics import median

from cluster_client import ClusterClient
from cluster_load import Load
from cluster_machine import ClusterMachine
from cluster_place import ClusterPlace, until

logger = logging.getLogger(__name__)

_MOST_S = 10.0
_LOAD = 4
_REST_S = 1.0
_ASK_S = 0.3  # between two looks into the database, each of which connects to it


class Gate:
    """The scenes. `takeovers` are the seconds between the end of a holder and the next one."""

    def __init__(self, place: ClusterPlace) -> None:
        self.place = place
        self.takeovers: list[float] = []
        self._numbers = count(1)

    def next_number(self) -> int:
        return next(self._numbers)

    # --- scenes

    async def power_failure(self) -> None:
        """The holder dies in the middle of a turn with tools; what waited behind that turn runs elsewhere."""
        client = await self._client("power", tool_s=1.0)
        running, waiting = await self._at_work(client)
        holder = self.place.holder(client.session_id)
        with self._takeover(client):
            await asyncio.to_thread(holder.lose_power)
            await self._interrupted(client, running)
        await self._completed(client, waiting)
        assert self.place.find_holder(client.session_id) is not holder

    async def freeze(self) -> None:
        """The holder stands still, another member goes on, and then it wakes up in the middle of its old turn."""
        client = await self._client("freeze", tool_s=1.0)
        running, waiting = await self._at_work(client)
        holder = self.place.holder(client.session_id)
        with self._takeover(client):
            await asyncio.to_thread(holder.freeze)
            await self._interrupted(client, running)
        await self._completed(client, waiting)
        assert self.place.find_holder(client.session_id) is not holder
        await asyncio.to_thread(holder.thaw)
        await self._completed(client, await self._submit(client, "look note"))
        await until(lambda: self.place.is_member(holder), pause_s=_ASK_S)

    async def partition(self) -> None:
        """The holder cannot reach the database, without noticing at first, until others have gone on."""
        client = await self._client("partition", tool_s=1.0)
        running, waiting = await self._at_work(client)
        holder = self.place.holder(client.session_id)
        with self._takeover(client):
            for proxy in holder.proxies:
                proxy.stop()
            await until(lambda: self.place.find_holder(client.session_id) not in (holder, None), pause_s=_ASK_S)
        for proxy in holder.proxies:
            proxy.go()
        await self._interrupted(client, running)
        await self._completed(client, waiting)
        await until(lambda: self.place.is_member(holder), pause_s=_ASK_S)

    async def cut_connections(self) -> None:
        """Every connection to the database is cut, again and again; no turn ends because of it."""
        client = await self._client("cut", tool_s=0.2)
        running, waiting = await self._at_work(client)
        for _ in range(5):
            for machine in self.place.machines:
                for proxy in machine.proxies:
                    proxy.cut()
            await asyncio.sleep(0.1)
        await self._completed(client, running)
        await self._completed(client, waiting)

    async def restart_database(self) -> None:
        """The database crashes and is back a moment later; no turn ends because of it."""
        client = await self._client("restart", tool_s=0.2)
        running, waiting = await self._at_work(client)
        await asyncio.to_thread(self.place.databases.restart)
        await self._completed(client, running)
        await self._completed(client, waiting)

    async def fail_over(self) -> None:
        """The primary is lost and the standby takes its place; what was told before is there."""
        await asyncio.to_thread(self.place.add_standby)
        client = await self._client("failover", tool_s=0.2)
        running, waiting = await self._at_work(client)
        await asyncio.to_thread(self.place.databases.promote)
        await self._completed(client, running)
        await self._completed(client, waiting)

    async def roll(self) -> None:
        """Every machine is replaced, one after the other; the turns of one that is there end first."""
        for machine in sorted(self.place.machines, key=lambda one: one.is_up):
            await asyncio.to_thread(_replace, machine)

    # --- what they have in common

    async def _client(self, scene: str, **plan: float) -> ClusterClient:
        return await self.place.client(f"{scene}{self.next_number()}-1", watchers=2, **plan)

    async def _submit(self, client: ClusterClient, tools: str) -> str:
        return await client.submit(f"quick{self.next_number()}t1: {tools}")

    async def _at_work(self, client: ClusterClient) -> tuple[str, str]:
        """Have one turn that runs a tool at this moment, and one that waits behind it."""
        number = self.next_number()
        running = await client.submit(f"quick{number}t1: look note send")
        waiting = await client.submit(f"quick{number}t2: note")
        await until(lambda: self.place.began(f"quick{number}t1.1"))
        return running, waiting

    async def _interrupted(self, client: ClusterClient, correlation_id: str) -> None:
        end = await client.until_ended(correlation_id)
        assert (end["status"], end["error"]["code"]) == ("failed", "aborted"), end

    async def _completed(self, client: ClusterClient, correlation_id: str) -> None:
        end = await client.until_ended(correlation_id)
        assert end["status"] == "completed", end

    @contextmanager
    def _takeover(self, client: ClusterClient) -> Iterator[None]:
        """Measure, by the database's clock, how long it takes until another member holds the session."""
        begun = self.place.databases.now()
        yield
        self.takeovers.append(self.place.taken_after(client.session_id, begun))


def _replace(machine: ClusterMachine) -> None:
    if machine.is_up:
        machine.drain()
        machine.stop()
    machine.start()


Scene = Callable[[Gate], Awaitable[None]]

SCENES: Sequence[Scene] = (
    Gate.freeze,
    Gate.partition,
    Gate.cut_connections,
    Gate.restart_database,
    Gate.fail_over,
    Gate.power_failure,
    Gate.roll,
)


async def play(gate: Gate, scenes: Sequence[Scene], *, load: int, rest_s: float) -> Counter[str]:
    """Play scenes under load, and look at everything afterwards."""
    async with Load(gate.place, f"load{gate.next_number()}", load, rest_s=rest_s):
        for scene in scenes:
            begun = time.monotonic()
            await scene(gate)
            logger.info("%s: %.1f s", scene.__name__, time.monotonic() - begun)
    return await gate.place.check()


async def rounds(number: int, seed: int) -> tuple[Counter[str], list[float]]:
    counted: Counter[str] = Counter()
    async with ClusterPlace(seed=seed) as place:
        gate = Gate(place)
        for each, scene in enumerate(islice(cycle(SCENES), number), start=1):
            begun = time.monotonic()
            counted += await play(gate, [scene], load=_LOAD, rest_s=_REST_S)
            sys.stdout.write(f"round {each} of {number}, {scene.__name__}: {time.monotonic() - begun:.0f} s\n")
            sys.stdout.flush()
            await place.begin_anew()
    return counted, gate.takeovers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=len(SCENES))
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left running
    counted, takeovers = asyncio.run(rounds(given.rounds, given.seed))
    sys.stdout.write(f"{given.rounds} rounds, seed {given.seed}\n")
    sys.stdout.writelines(f"  {number:7} {what}\n" for what, number in sorted(counted.items()))
    sys.stdout.write(f"  takeovers: median {median(takeovers):.1f} s, all within {max(takeovers):.1f} s\n")
    is_late = max(takeovers) > _MOST_S
    if is_late:
        sys.stdout.write(f"a takeover took longer than the {_MOST_S:g} s that are promised\n")
    return int(is_late)


if __name__ == "__main__":
    sys.exit(main())
