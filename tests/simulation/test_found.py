"""What the simulation found, each as the smallest case of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from simulated_connection import connection_type
from simulated_server import Server
from simulated_worker import announcements
from simulated_world import Machine, World
from stored_sessions import new_session
from virtual_loop import VirtualLoop

from amplifier_system.tasks import Supervisor
from amplifierd.paths import Paths
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store_address import StoreAddress
from amplifierd.workers.live_sessions import SubmittedTurn, TurnRequest


async def test_a_session_whose_release_failed_is_held_again_by_the_process_that_gave_it_up(tmp_path: Path) -> None:
    server = Server()
    store = PostgresStore(
        Paths.from_environment(tmp_path, environ={}),
        StoreAddress.parse("postgresql://simulated/amplifier"),
        connection_type=connection_type(server),
        loop=asyncio.get_running_loop(),
    )
    me = Holder(pid=1, started=1.0, boot_id="boot", host="another-machine", kind="worker")
    hold = await store.create(new_session("s1"), me)
    server.hidden.add("holds")
    with pytest.raises(psycopg.Error):
        await store.release(hold)
    server.hidden.clear()

    again = await store.acquire("s1", me)

    assert again.epoch == hold.epoch + 1
    await store.close()


def test_a_loop_that_failed_twice_and_runs_since_does_not_count_as_failing_ever_longer() -> None:
    supervisor, failures = Supervisor(), [OSError("one"), OSError("two")]

    async def work() -> None:
        await asyncio.sleep(1)
        if failures:
            raise failures.pop()
        await asyncio.sleep(1000)

    async def run() -> list[float]:
        task = supervisor.start("work", work)
        found = []
        for _ in range(40):
            await asyncio.sleep(1)
            found.append(supervisor.failing_for_s())
        task.cancel()
        return found

    loop = VirtualLoop(Random(0))
    try:
        failing_s = loop.run_until_complete(run())
    finally:
        loop.close()

    assert max(failing_s) < 3
    assert failing_s[-1] == 0


def test_a_member_at_rest_has_no_loop_that_stands_still() -> None:
    async def run(world: World) -> tuple[list[str], float]:
        machine = Machine(world, "a")
        world.machines.append(machine)
        machine.start()
        await asyncio.sleep(300)
        assert machine.daemon is not None
        supervisor = machine.daemon.store.supervisor
        return [loop.name for loop in supervisor.states], supervisor.failing_for_s()

    world = World(0)
    try:
        loops, failing_s = world.loop.run_until_complete(world.loop.create_task(run(world)))
    finally:
        world.loop.gather_up()

    assert {"takeover", "session places", "load report", "turns", "left turns", "refused turns"} <= {*loops}
    assert failing_s == 0


def test_a_turn_whose_run_fails_in_an_unforeseen_way_is_run_again_however_busy_its_member_is() -> None:
    async def run(world: World) -> dict[str, Any]:
        machine = Machine(world, "a")
        world.machines.append(machine)
        machine.start()
        await asyncio.sleep(0.5)
        daemon = machine.daemon
        assert daemon is not None
        await announcements(daemon.store, daemon.publish).add(new_session("s1"), daemon.sessions.runtime.holder)
        failures, submit = [psycopg.DataError("no one foresaw this")], daemon.live.submit

        async def fail_once(session_id: str, turn: TurnRequest) -> SubmittedTurn:
            if failures:
                raise failures.pop()
            return await submit(session_id, turn)

        daemon.live.submit = fail_once  # type: ignore[method-assign] # as a worker's answer may
        submitted = await daemon.turns.submit("s1", TurnRequest("hello"))
        for _ in range(30):
            await asyncio.sleep(1)
            await daemon.store.notifications.notify("amplifier_turns", daemon.cluster.member_id)
            if submitted.result.done():
                break
        return submitted.result.result()

    world = World(0)
    try:
        result = world.loop.run_until_complete(world.loop.create_task(run(world)))
    finally:
        world.loop.gather_up()

    assert result["status"] == "completed"
