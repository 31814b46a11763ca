"""Asks a daemon for a thousand idle streams with one token, and has clients that read nothing, while turns run.

    python tests/soak stream_soak --idle 1000 --unread 16 --streaming 20 --turns 15

One owner gets half of the places for streams and no more, others find theirs, those who read get every event, those
who read nothing are closed, and memory stays within its bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from daemon_load import SETTINGS, Load, Seen
from daemon_process import DaemonProcess
from plain_http import Connection

from amplifierd.paths import Paths
from amplifierd.server.auth.tokens import Tokens
from amplifierd.server.events.subscriber import StreamLimits

_EVENTS = "/api/v1/events"
_PLACES = StreamLimits().subscribers
_PATIENCE = 300  # looks, ten a second
_PROCESSES_MIB = 400  # the daemon and its workers with nothing loaded
_CLIENT_MIB = 0.5  # a session or a connection, with what waits for it


@dataclass
class Outcome:
    """What was measured, how many idle streams there were, and how many places were taken then, later, and after."""

    seen: Seen
    opened: int
    taken: int
    left: int
    after: int


async def soak(
    daemon: DaemonProcess, token: str, work: Path, *, idle: int, unread: int, streaming: int, turns: int
) -> Outcome:
    """Load a daemon with streams, run turns, and check what those who watch got and what is left of the others."""
    async with AsyncExitStack() as stack:
        load = Load(daemon, stack, work, turns=turns, delay_ms=5)
        answers = []
        for _ in range(idle):
            connection = await stack.enter_async_context(await Connection.open(daemon.url, token))
            answers.append(await connection.begin(_EVENTS))
        opened = answers.count(200)
        assert opened == min(idle, _PLACES // 2), f"{opened} streams of one owner were opened"
        assert answers.count(503) == idle - opened, f"{idle} streams were answered with {set(answers)}"

        for _ in range(unread):
            assert await (await load.connection()).begin(_EVENTS) == 200
        watched = await load.streaming(streaming, unread=0)
        taken = await _places(await load.connection())
        await load.run(watched, turns, unread=0)
        await load.check(watched, turns)
        left = await _at_most(await load.connection(), opened + streaming)
    limit = _PROCESSES_MIB + (idle + unread + streaming) * _CLIENT_MIB
    assert max(load.seen.memory) < limit, f"{load.seen.memory} MiB, more than {limit} MiB"
    async with await Connection.open(daemon.url, daemon.token) as admin:
        return Outcome(load.seen, opened, taken, left, await _at_most(admin, 0))


async def _places(connection: Connection) -> int:
    return int((await connection.get("/api/v1/status")).json()["queues"]["subscribers"])


async def _at_most(connection: Connection, count: int) -> int:
    """Wait until no more streams are open than that."""
    for _ in range(_PATIENCE):
        if (places := await _places(connection)) <= count:
            return places
        await asyncio.sleep(0.1)
    raise AssertionError(f"{places} streams are open, {count} of them should be")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--unread", type=int, default=16)
    parser.add_argument("--streaming", type=int, default=20)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amplifier-stream-soak-") as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        work.mkdir()
        with DaemonProcess(home, SETTINGS) as daemon:
            token = Tokens(Paths.from_environment(home)).create("greedy", "run", owner="greedy")[1]
            found = asyncio.run(soak(daemon, token, work, **vars(given)))
    seen, sizes = found.seen, [f"{size:.0f}" for size in found.seen.memory]
    lines = [
        f"{given.idle} idle streams of one owner: {found.opened} opened, {given.idle - found.opened} refused",
        f"{given.unread} clients that read nothing, {given.streaming} that read, {given.turns} turns each",
        f"{seen.events} events, none lost, none out of order; 99 % within {seen.p99:.1f} ms",
        f"/health: {len(seen.health)} times within {max(seen.health):.0f} ms; slowest turn {max(seen.turns):.0f} ms",
        f"streams: {found.taken} before the turns, {found.left} after them, {found.after} once all had left",
        f"memory of the daemon and its workers: {sizes[0]} MiB before the turns, {max(map(int, sizes))} MiB at most",
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
