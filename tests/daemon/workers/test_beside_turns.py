"""What is done to sessions beside their turns, wherever they are: changed, looked at, replayed, deleted."""

import pytest
from agents_at_work import call
from worker_bench import PROMPT, WorkerBench, faulty, until

from amplifierd.exceptions import ExecutionInProgressError, InvalidTurnError, SessionNotFoundError
from amplifierd.workers.live_sessions import TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = [{"module": "tool-filesystem"}]
HELPER = {"instruction": "You help.", "providers": [{"module": "provider-mock", "config": {"script": ["Helped."]}}]}


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_session_is_changed_where_it_is(bench: WorkerBench, is_live: bool) -> None:
    session_id, folder = await bench.session(
        [call("write_file", file_path="new.txt", content="x"), "Done."], tools=FILES
    )
    await bench.run(session_id)
    if not is_live:
        await bench.live.unload(session_id)
    acts = bench.live.acts

    assert (await acts.update(session_id, name="Named", metadata={"a": 1})).name == "Named"
    assert (await acts.tag(session_id, add=["one"])).tags == ["one"]
    assert (await acts.append_message(session_id, role="user", content="By the way"))["content"] == "By the way"
    assert (await acts.delete_last_message(session_id))["content"] == "By the way"
    with pytest.raises(InvalidTurnError):
        await acts.truncate(session_id, turn=7)
    undone = await acts.undo(session_id, turn=1)
    assert (undone.done, undone.restored, (folder / "new.txt").exists()) == (True, ("new.txt",), False)

    assert (await bench.run(session_id))["turn"] == 1
    assert (await acts.end(session_id, status="failed", error_message="enough")).status == "failed"
    assert bench.live.state(session_id) is None
    await acts.delete(session_id)
    with pytest.raises(SessionNotFoundError):
        await bench.live.load(session_id)


async def test_a_session_at_work_is_not_deleted_unless_forced(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("wait"))
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    with pytest.raises(ExecutionInProgressError):
        await bench.live.acts.delete(session_id)
    await bench.live.acts.delete(session_id, force=True)

    assert (await bench.result(submitted))["status"] == "cancelled"
    assert bench.live.state(session_id) is None
    assert bench.events[-1].name == "session:deleted"


async def test_what_is_mounted_can_be_looked_at(bench: WorkerBench) -> None:
    tools = [*FILES, {"module": "tool-of-another-world"}]
    session_id, _ = await bench.session(tools=tools, agents={"helper": {"description": "Helps", **HELPER}})

    modules = {one["id"]: one["status"] for one in await bench.live.inspect(session_id, "modules")}
    assert (modules["tool-filesystem"], modules["tool-of-another-world"]) == ("loaded", "failed")
    assert "read_file" in [one["name"] for one in await bench.live.inspect(session_id, "tools")]
    assert await bench.live.inspect(session_id, "agents") == [{"name": "helper", "description": "Helps"}]
    assert {"name": "session.spawn"} in await bench.live.inspect(session_id, "capabilities")
    assert "tool:pre" in [one["event"] for one in await bench.live.inspect(session_id, "hooks")]


async def test_a_child_is_reached_in_the_worker_of_its_root(bench: WorkerBench) -> None:
    script = [call("task", agent="helper", instruction="Help"), "Done."]
    session_id, _ = await bench.session(script, tools=[{"module": "tool-task"}], agents={"helper": HELPER})
    await bench.run(session_id)
    (child,) = bench.home.sessions.children(session_id)

    await bench.live.acts.rename(child.session_id, name="The child")
    assert bench.home.sessions.get(child.session_id).name == "The child"
    await bench.live.load(child.session_id)
    assert bench.worker_of(child.session_id) == bench.worker_of(session_id)
    envelopes = [one for one in bench.events if one.root_session_id == session_id]
    assert {one.session_id for one in envelopes} == {session_id, child.session_id}
    numbers = [one.cursor.seq for one in envelopes if one.cursor is not None and not one.is_delta]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_session_is_replayed_in_a_worker(bench: WorkerBench) -> None:
    session_id, _ = await bench.session(tools=FILES)
    await bench.run(session_id)
    await bench.live.unload(session_id)

    assert (await bench.live.replay(session_id))["status"] == "same"
