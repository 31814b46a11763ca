"""Turns that several members share: run where their session is, asked for anywhere, and never lost or run twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from psycopg import AsyncConnection
from turn_bench import TurnBench, open_durable
from worker_bench import FAULTS, PATIENCE_S, PROMPT, faulty, until

from amplifier_core.exceptions import AmplifierError
from amplifierd.exceptions import (
    IdempotencyConflictError,
    MemberFencedError,
    NowhereToRunError,
    SessionHeldError,
    TurnDeadlineError,
)
from amplifierd.paths import Paths
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store_address import StoreAddress
from amplifierd.turns.durable import jobs
from amplifierd.turns.durable.job_schema import prepare
from amplifierd.turns.durable.jobs import register_worker
from amplifierd.turns.durable.turn_rows import CHANNEL, NewTurn, TurnRows, result_of
from amplifierd.turns.turn_queue import TurnKey
from amplifierd.workers.live_sessions import LiveEvent, SubmittedTurn, TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = TurnKey("someone", "1", "the request")
_WAITING = "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)) AND query LIKE %s"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def members(
    store_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[TurnBench, TurnBench]]:
    async with AsyncExitStack() as stack:
        names = ("one", "two")
        folders = [tmp_path_factory.mktemp(name) for name in names]
        one, two = [await stack.enter_async_context(open_durable(folder, store_address)) for folder in folders]
        yield one, two


async def test_a_turn_runs_where_its_session_is_and_its_key_stands_for_it_everywhere(
    members: tuple[TurnBench, TurnBench],
) -> None:
    one, two = members
    session_id, folder = await one.workers.session([*faulty("wait"), "Said."])
    first = await one.turns.submit(session_id, TurnRequest(PROMPT), KEY)
    await until((folder / "begun").exists)

    again = await two.turns.submit(session_id, TurnRequest(PROMPT), KEY)
    waiting = await two.turns.submit(session_id, TurnRequest("and then", queue=True))
    with pytest.raises(IdempotencyConflictError):
        await two.turns.submit(session_id, TurnRequest("other"), TurnKey("someone", "1", "another request"))
    assert (again.correlation_id, again.is_repeated) == (first.correlation_id, True)
    assert await one.turns.waiting(session_id) == await two.turns.waiting(session_id)
    (folder / "go").touch()

    assert await two.workers.result(again) == await one.workers.result(first)
    assert (await two.workers.result(waiting))["turn"] == 2
    assert two.workers.live.state(session_id) is None
    once_more = await two.turns.submit(session_id, TurnRequest(PROMPT), KEY)
    assert (await two.workers.result(once_more))["turn"] == 1
    others = await two.turns.submit(session_id, TurnRequest("mine"), TurnKey("somebody else", "1", "the request"))
    assert (await two.workers.result(others))["turn"] == 3


async def test_who_lost_a_session_in_the_middle_of_a_turn_leaves_its_end_to_others(
    members: tuple[TurnBench, TurnBench],
) -> None:
    one, two = members
    session_id, folder = await one.workers.session([*faulty("wait"), "Said."])
    await one.begin(session_id, folder)
    other = two.workers.home.sessions.runtime
    await other.store.release(await other.store.acquire(session_id, other.holder, take_over=True))

    (folder / "go").touch()
    await one.settle(session_id)

    assert "user_message:saved" in one.workers.told(session_id)
    assert "execution:done" not in one.workers.told(session_id)


async def test_a_turn_that_comes_back_to_a_member_which_was_fenced_is_known_to_run_there(
    postgres_address: str, tmp_path: Path
) -> None:
    async with open_durable(tmp_path, postgres_address) as one:
        session_id, folder = await one.workers.session([*faulty("wait"), "Said."])
        await one.workers.live.load(session_id)
        await one.workers.live.unload(session_id)
        runtime = one.workers.home.sessions.runtime
        store = runtime.store
        assert isinstance(store, PostgresStore)
        await store.acquire(session_id, runtime.holder)
        submitted = await one.turns.submit(session_id, TurnRequest(PROMPT))
        await asyncio.sleep(0.5)  # it cannot begin, and is about to be tried again
        assert await store.members.fence(store.members.own_id or "", by_operator=True)
        await one.workers.live.abandon()
        await store.members.join()
        await one.turns.take_over(session_id)
        await until((folder / "begun").exists)

        await asyncio.sleep(1.0)
        await store.notifications.notify(CHANNEL)  # something may have been missed
        await asyncio.sleep(0.3)
        (folder / "go").touch()

        assert (await one.workers.result(submitted))["status"] == "completed"


async def test_an_attempt_to_begin_a_turn_ends_when_its_member_is_fenced(postgres_address: str, tmp_path: Path) -> None:
    async with open_durable(tmp_path, postgres_address) as one:
        lingers = [{**FAULTS, "config": {"lingers": True}}]
        session_id, folder = await one.workers.session([*faulty("wait"), "Said."], tools=lingers)
        live, store = one.workers.live, one.workers.home.sessions.runtime.store
        assert isinstance(store, PostgresStore)
        await live.load(session_id)
        async with one.workers.meanwhile(_quietly(live.unload(session_id))):
            await until((folder / "ending").exists)
            submitted = await one.turns.submit(session_id, TurnRequest(PROMPT))
            await asyncio.sleep(0.3)  # it waits until the session has left its worker
            assert await store.members.fence(store.members.own_id or "", by_operator=True)
            await one.turns.abandon()
            await live.abandon()
        await store.members.join()
        await one.turns.take_over(session_id)
        await until((folder / "begun").exists)
        await asyncio.sleep(0.5)
        (folder / "go").touch()
        (folder / "end").touch()

        assert (await one.workers.result(submitted))["status"] == "completed"
        await one.settle(session_id)
        prompts = [each["content"] for each in await store.read_messages(session_id) if each["role"] == "user"]
        assert prompts == [PROMPT]


async def _quietly(work: Awaitable[object]) -> None:
    with suppress(AmplifierError):  # its worker is killed
        await work


async def test_what_a_member_says_of_its_turns_after_it_was_fenced_is_not_heard(
    members: tuple[TurnBench, TurnBench], tmp_path: Path, store_address: str
) -> None:
    one, _ = members
    store = PostgresStore(Paths.from_environment(tmp_path), StoreAddress.parse(store_address))
    rows, late = TurnRows(store.database), await store.join()
    session_id, _ = await one.workers.session()
    await store.members.set_state(late, "draining")  # nobody gives it anything else
    await rows.submit(NewTurn("a turn", session_id, late, late, TurnRequest("Hello")), most=1)
    (row,) = await rows.of_session(session_id)
    assert await store.members.fence(late, by_operator=True)

    assert await rows.end(row, "{}") is None
    async with asyncio.timeout(60):
        while not (await store.last_events([session_id], ["execution:done"])):  # noqa: ASYNC110 - others run it
            await asyncio.sleep(0.05)
    await store.close()


async def test_how_a_turn_of_a_dead_member_ended_is_left_to_who_has_its_session(
    members: tuple[TurnBench, TurnBench], tmp_path: Path, store_address: str
) -> None:
    session_id, _ = await members[0].workers.session()
    address, daemon = StoreAddress.parse(store_address), Holder.of_this_process("daemon")
    dead, taker = [PostgresStore(Paths.from_environment(tmp_path), address) for _ in range(2)]
    rows, late = TurnRows(dead.database), await dead.join()
    await dead.members.set_state(late, "draining")
    await rows.submit(NewTurn("begun", session_id, late, late, TurnRequest("Hello")), most=1)

    async def begin(connection: AsyncConnection) -> None:
        await connection.execute("UPDATE turns SET state = 'running' WHERE turn_id = 'begun'")

    await dead.database.read(begin)
    turn = {"turn": 1, "correlation_id": "begun"}
    said = [{"id": role, "role": role, "content": "Hello", **turn} for role in ("user", "assistant")]
    await dead.append_messages(await dead.acquire(session_id, daemon), said)
    hold = await taker.acquire(session_id, daemon, take_over=True)
    assert await taker.members.fence(late, by_operator=True)
    await asyncio.sleep(1.0)
    assert [row.state for row in await rows.of_session(session_id)] == ["running"]  # its end may be told any moment

    done = {"status": "completed", "response": "Hello", "usage": {}}
    await taker.append_events(hold, [{"seq": 99, "event": "execution:done", "data": done, **turn}])
    await taker.notifications.notify("amplifier_cluster")
    async with asyncio.timeout(60):
        while not (ended := await rows.results(["begun"])):  # noqa: ASYNC110 - another member works
            await asyncio.sleep(0.05)
    assert result_of(ended["begun"])["status"] == "completed"
    for store in (taker, dead):
        await store.close()


async def test_a_turn_of_a_dead_member_that_can_run_nowhere_ends_at_its_deadline_and_can_be_removed(
    members: tuple[TurnBench, TurnBench], tmp_path: Path, store_address: str
) -> None:
    one, two = members
    session_id, _ = await one.workers.session()
    dead = PostgresStore(Paths.from_environment(tmp_path), StoreAddress.parse(store_address))
    hold = await dead.acquire(session_id, Holder.of_this_process("worker"))
    await dead.update(hold, working_dir_host="elsewhere")
    late = await one.turns.submit(session_id, TurnRequest("late", deadline_s=0.5))
    await one.turns.submit(session_id, TurnRequest("waits", queue=True))
    rows, nobody_waits = TurnRows(dead.database), TurnRequest("nobody waits", queue=True, deadline_s=0.01)
    await rows.submit(NewTurn("late", session_id, hold.member_id or "", "gone", nobody_waits), most=9)
    assert await dead.members.fence(hold.member_id or "", by_operator=True)

    with pytest.raises(TurnDeadlineError):
        await one.workers.result(late)
    async with asyncio.timeout(PATIENCE_S):
        while not (ended := await rows.results(["late"])):  # noqa: ASYNC110 - another member works
            await asyncio.sleep(0.05)
    with pytest.raises(TurnDeadlineError):
        result_of(ended["late"])
    assert await two.turns.remove(session_id, 1) == "waits"
    assert not await rows.of_session(session_id)
    await dead.close()


async def test_a_turn_that_was_found_late_while_the_answer_was_lost_does_not_hold_up_the_next_one(
    members: tuple[TurnBench, TurnBench], tmp_path: Path, store_address: str
) -> None:
    one, _ = members
    session_id, _ = await one.workers.session()
    other = PostgresStore(Paths.from_environment(tmp_path), StoreAddress.parse(store_address))
    rows, there = TurnRows(other.database), await other.join()
    await rows.submit(NewTurn("late one", session_id, there, there, TurnRequest("late", deadline_s=0.0)), most=1)
    taken = await rows.take(there, await other.database.read(register_worker))  # and nobody hears of it
    assert taken is not None
    assert taken.state == "waiting"

    next_one = await one.turns.submit(session_id, TurnRequest("next", queue=True))
    await other.notifications.notify("amplifier_cluster")

    assert (await one.workers.result(next_one))["turn"] == 1
    await other.close()


async def test_every_member_hears_of_a_refusal_also_one_that_comes_later(
    members: tuple[TurnBench, TurnBench], tmp_path: Path, store_address: str
) -> None:
    one, two = members
    session_id, folder = await one.workers.session([*faulty("wait"), "Said."])
    await one.begin(session_id, folder)
    refused = await one.turns.submit(session_id, TurnRequest("later", queue=True))

    assert await two.turns.remove(session_id, 1) == "later"

    await until(lambda: _told(one.ends_elsewhere, refused))
    async with open_durable(tmp_path, store_address) as third:
        await until(lambda: _told(third.ends_elsewhere, refused))
    for heard in (one.ends_elsewhere, third.ends_elsewhere):  # some of them more than once
        assert _told(heard, refused)[0] == two.workers.end_of(refused)
    assert not _told(one.workers.events, refused)
    (folder / "go").touch()


def _told(events: list[LiveEvent], turn: SubmittedTurn) -> list[dict[str, Any]]:
    """Return what was told of the end of a turn."""
    told = [json.loads(event.envelope) for event in events if event.name == "execution:done"]
    return [one["data"] for one in told if one["correlation_id"] == turn.correlation_id]


async def test_what_no_member_may_run_is_refused_at_once(members: tuple[TurnBench, TurnBench]) -> None:
    one, _ = members
    session_id, _ = await one.workers.session()
    store = one.workers.home.sessions.runtime.store
    hold = await store.acquire(session_id, one.workers.home.sessions.runtime.holder)
    await store.update(hold, working_dir_host="elsewhere")

    with pytest.raises(NowhereToRunError, match="elsewhere"):  # the member that has it for a moment may not either
        await one.turns.submit(session_id, TurnRequest("Hello"))
    await store.release(hold)
    with pytest.raises(NowhereToRunError, match="elsewhere"):
        await one.turns.submit(session_id, TurnRequest("Hello"))


async def test_waiting_turns_of_a_member_that_leaves_are_run_by_another(
    members: tuple[TurnBench, TurnBench], store_address: str, tmp_path: Path
) -> None:
    one, _ = members
    async with open_durable(tmp_path, store_address) as third:
        session_id, folder = await third.workers.session([*faulty("wait"), "Said."])
        begun = await third.begin(session_id, folder)
        waiting = await one.turns.submit(session_id, TurnRequest("later", queue=True))

    assert (await third.workers.result(begun))["status"] == "cancelled"
    result = await one.workers.result(waiting)
    assert (result["status"], result["turn"]) == ("completed", 2)


@pytest.mark.usefixtures("members")
async def test_a_member_that_is_drained_ends_what_it_runs_and_leaves_the_rest_to_others(
    store_address: str, tmp_path: Path
) -> None:
    async with open_durable(tmp_path, store_address) as third:
        store = third.workers.home.sessions.runtime.store
        assert isinstance(store, PostgresStore)
        session_id, folder = await third.workers.session([*faulty("wait"), "Said.", "Said."])
        begun = await third.begin(session_id, folder)
        waiting = await third.turns.submit(session_id, TurnRequest("later", queue=True))
        assert await store.members.set_state(store.members.own_id or "", "draining")
        async with third.workers.meanwhile(third.turns.drain()):
            late = await third.turns.submit(session_id, TurnRequest("still later", queue=True))
            (folder / "go").touch()

        results = [await third.workers.result(turn) for turn in (begun, waiting, late)]
        assert [(one["status"], one["turn"]) for one in results] == [("completed", n) for n in (1, 2, 3)]
        assert third.workers.live.state(session_id) is None


async def test_a_turn_that_is_just_being_taken_when_a_member_is_drained_is_not_lost(
    postgres_address: str, tmp_path: Path
) -> None:
    async with open_durable(tmp_path, postgres_address) as one:
        store = one.workers.home.sessions.runtime.store
        assert isinstance(store, PostgresStore)
        session_id, _ = await one.workers.session(["Said."])
        own, rows = store.members.own_id or await store.join(), TurnRows(store.database)
        await rows.submit(NewTurn("a turn", session_id, own, own, TurnRequest("Hello")), most=1)

        async def keep_from_beginning(connection: AsyncConnection) -> None:
            async with connection.transaction():
                await connection.execute("SELECT FROM turns WHERE turn_id = 'a turn' FOR UPDATE")
                await asyncio.sleep(1.5)

        async with one.workers.meanwhile(store.database.read(keep_from_beginning)):
            await asyncio.sleep(0.3)
            await store.notifications.notify(CHANNEL)
            await asyncio.sleep(0.5)
            await one.turns.drain()

        assert "result" in (await rows.results(["a turn"]))["a turn"]


@pytest.mark.parametrize(
    ("is_taken", "lock", "waits"),
    [(False, "", "%UPDATE turns SET state = CASE%"), (True, "LOCK TABLE turns;", "SELECT % AND state = 'running'")],
    ids=["it is just being taken", "it was taken, and the answer was lost"],
)
async def test_a_turn_that_is_taken_while_its_member_is_fenced_is_not_begun_twice(
    postgres_address: str, tmp_path: Path, is_taken: bool, lock: str, waits: str
) -> None:
    other = PostgresStore(Paths.from_environment(tmp_path), StoreAddress.parse(postgres_address))
    async with open_durable(tmp_path, postgres_address) as one:
        store, rows = _store_of(one), TurnRows(other.database)
        session_id, _ = await one.workers.session(["Said.", "Said again."])
        there, own = await other.join(), await store.join()
        await rows.submit(NewTurn("a turn", session_id, there, there, TurnRequest(PROMPT)), most=1)
        (row,) = await rows.of_session(session_id)
        if is_taken:
            await rows.take(there, await other.database.read(register_worker))
        async with _locking(postgres_address, f"{lock} UPDATE turns SET member_id = '{own}'", waits) as it_waits:
            if not is_taken:
                await store.database.read(lambda connection: jobs.move(connection, row.job_id, own))
            await store.notifications.notify(CHANNEL)
            await it_waits()
            await _join_again(one)

        await _runs_once(one, session_id)
    await other.close()


def _store_of(bench: TurnBench) -> PostgresStore:
    store = bench.workers.home.sessions.runtime.store
    assert isinstance(store, PostgresStore)
    return store


@asynccontextmanager
async def _locking(store_address: str, statement: str, waits: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Have a statement take effect after the block; yields what returns once such a statement waits for it."""
    address = StoreAddress.parse(store_address)
    options = f"-c search_path={address.schema}"
    async with await AsyncConnection.connect(address.conninfo, options=options) as connection:
        await connection.execute(statement.encode())

        async def it_waits() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not (await connection.execute(_WAITING, [waits])).rowcount:
                    await asyncio.sleep(0.02)
                    await connection.execute("SELECT pg_stat_clear_snapshot()")

        yield it_waits


async def _join_again(bench: TurnBench) -> None:
    """Have a member fenced, and do what its daemon does then."""
    members = _store_of(bench).members
    assert await members.fence(members.own_id or "", by_operator=True)
    await bench.turns.abandon()
    await bench.workers.live.abandon()
    await members.join()


async def _runs_once(bench: TurnBench, session_id: str) -> None:
    """Take a session over whose turn was taken by a member that is gone, and see that the turn runs once."""
    store, rows = _store_of(bench), TurnRows(_store_of(bench).database)
    async with asyncio.timeout(PATIENCE_S):
        while [row.state for row in await rows.of_session(session_id)] == ["waiting"]:  # noqa: ASYNC110 - it is taken
            await asyncio.sleep(0.02)
        with suppress(SessionHeldError):  # it is being taken over
            await bench.turns.take_over(session_id)
        while await rows.of_session(session_id):  # noqa: ASYNC110 - a worker runs it
            await asyncio.sleep(0.05)
    await bench.settle(session_id)
    prompts = [each["content"] for each in await store.read_messages(session_id) if each["role"] == "user"]
    assert prompts == [PROMPT]


async def test_a_member_that_others_fenced_takes_no_turns_any_more(postgres_address: str, tmp_path: Path) -> None:
    store = PostgresStore(Paths.from_environment(tmp_path), StoreAddress.parse(postgres_address))
    await store.database.read(prepare)
    worker_id, rows, own = await store.database.read(register_worker), TurnRows(store.database), await store.join()
    await rows.submit(NewTurn("a turn", "a session", own, own, TurnRequest("Hello")), most=1)
    assert await store.members.fence(own, by_operator=True)

    with pytest.raises(MemberFencedError):
        await rows.take(own, worker_id)
    await store.members.join()
    there = await store.join()
    await rows.move(await rows.of_session("a session"), there)
    taken = await rows.take(there, worker_id)
    assert taken is not None
    assert taken.turn_id == "a turn"
    await store.close()


async def test_members_that_come_up_together_prepare_the_engine_once(postgres_address: str, tmp_path: Path) -> None:
    address = StoreAddress.parse(postgres_address)
    stores = [PostgresStore(Paths.from_environment(tmp_path), address) for _ in range(3)]
    await asyncio.gather(*(store.database.read(prepare) for store in stores))
    await asyncio.gather(*(store.database.read(prepare) for store in stores))

    async def count(connection: AsyncConnection) -> Any:
        return await (await connection.execute("SELECT count(*) > 0 FROM job_migrations")).fetchone()

    assert await stores[0].database.read(count) == (True,)
    for store in stores:
        await store.close()


async def test_turns_that_are_moved_keep_their_place_before_later_ones(postgres_address: str, tmp_path: Path) -> None:
    store = PostgresStore(Paths.from_environment(tmp_path), StoreAddress.parse(postgres_address))
    await store.database.read(prepare)
    worker_id, rows = await store.database.read(register_worker), TurnRows(store.database)
    goes, stays = await store.members.join(), await store.members.join()
    for turn_id, session_id, member_id in (("a", "s1", goes), ("b", "s2", goes), ("c", "s3", stays)):
        await rows.submit(NewTurn(turn_id, session_id, member_id, "asker", TurnRequest("hello")), most=10)
    begun = await rows.take(goes, worker_id)
    assert begun is not None

    await rows.move(await rows.of_session("s2"), stays)
    await rows.move([begun], stays)

    taken = [await rows.take(stays, worker_id) for _ in range(4)]
    assert [row.turn_id if row is not None else None for row in taken] == ["a", "b", "c", None]
    await store.close()
