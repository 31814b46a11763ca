"""Loads a daemon with sessions that stream and sessions that are idle, then kills it and looks at what comes back.

    python tests/soak daemon_soak --streaming 100 --idle 1000 --turns 5

Nothing may be lost or come out of order, and memory has to stay within its bounds. With `--limits` the machine has to
be quiet: then 99 % of the events arrive, and `/health` is answered, within 100 ms, and the start takes two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from daemon_load import SESSIONS, SETTINGS, Load, Seen, Watched
from daemon_process import DaemonProcess
from plain_http import Connection

_MOST_MS = 100
_MOST_READY_S = 2.0
_SLOWER = 1.5
_UNREAD_SHARE = 10  # of so many sessions one has a reader that reads nothing
_PROCESSES_MIB = 400  # the daemon and its workers with nothing loaded, and what clients are kept for
_SESSION_MIB = 0.75  # a session and its latest events, in the worker and in the daemon


async def soak(daemon: DaemonProcess, work: Path, *, streaming: int, idle: int, turns: int, delay_ms: int) -> Seen:
    """Load a daemon, check that nothing was lost, kill it in the middle of turns, and bring everything back."""
    unread = max(1, streaming // _UNREAD_SHARE)
    async with AsyncExitStack() as stack:
        load = Load(daemon, stack, work, turns=turns, delay_ms=delay_ms)
        resting = await load.idle(idle)
        watched = await load.streaming(streaming, unread=unread)
        await load.run(watched, turns, unread=unread)
        await load.check(watched, turns)
        _check_memory(load.seen, streaming + idle)
        await load.begin_turns(watched)
        daemon.kill()
    daemon.start()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await Connection.open(daemon.url, daemon.token))
        await _check_what_is_back(connection, watched, resting)
    return load.seen


def _check_memory(seen: Seen, sessions: int) -> None:
    """Hold the memory to what so many sessions may take."""
    limit = _PROCESSES_MIB + sessions * _SESSION_MIB
    assert max(seen.memory) < limit, f"{seen.memory} MiB, more than {limit} MiB"


async def _check_what_is_back(connection: Connection, interrupted: Sequence[Watched], resting: Sequence[str]) -> None:
    for one in interrupted:
        session = (await connection.get(f"{SESSIONS}/{one.session_id}")).json()
        assert (session["last_error"] or {}).get("code") == "interrupted", f"{one.session_id} is not marked: {session}"
    everything = [*(one.session_id for one in interrupted), *resting]
    listed = (await connection.get(f"{SESSIONS}?limit=1")).json()["total"]
    assert listed == len(everything), f"{listed} sessions are listed, {len(everything)} were stored"
    for session_id in everything:
        session = (await connection.post(f"{SESSIONS}/{session_id}/resume")).json()
        assert (session["status"], session["activity"]) == ("active", "idle"), session


def misses(seen: Seen, daemon: DaemonProcess) -> list[str]:
    """Say which times are above their limits."""
    found = {
        f"99 % of the events within {_MOST_MS} ms": seen.p99 <= _MOST_MS,
        f"/health within {_MOST_MS} ms": max(seen.health) <= _MOST_MS,
        "turns beside readers that read nothing": median(seen.unread_turns) <= _SLOWER * median(seen.turns),
        f"ready within {_MOST_READY_S:g} s": daemon.ready_s <= _MOST_READY_S,
    }
    return [what for what, is_met in found.items() if not is_met]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streaming", type=int, default=100)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--delay-ms", type=int, default=50, help="between two words of an answer")
    parser.add_argument("--limits", action="store_true", help="exit with 1 when something takes too long")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amplifier-daemon-soak-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        with DaemonProcess(Path(folder) / "home", SETTINGS) as daemon:
            size = {"streaming": given.streaming, "idle": given.idle, "turns": given.turns, "delay_ms": given.delay_ms}
            seen = asyncio.run(soak(daemon, work, **size))
            missed = misses(seen, daemon)
            everything = given.streaming + given.idle
            sys.stdout.write(f"{given.streaming} streaming and {given.idle} idle sessions, {given.turns} turns each\n")
            sys.stdout.writelines(f"  {line}\n" for line in seen.lines())
            sys.stdout.write(f"  ready {daemon.ready_s:.2f} s after kill -9, all {everything} sessions resumed\n")
            sys.stdout.writelines(f"  above its limit: {what}\n" for what in missed)
    return int(given.limits and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
