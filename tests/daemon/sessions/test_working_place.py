"""Which machines have a session's working directory: said at its creation, changed later, inherited by its children."""

import socket
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent

import amplifierd
from amplifierd.exceptions import SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.working_place import Machine
from amplifierd.store.record import SessionRecord


def open_machine(folder: Path, **cluster: Any) -> Home:
    return amplifierd.open_home(folder / "home", offline=True, overrides={"cluster": cluster})


def place(record: SessionRecord) -> tuple[str, str | None, str | None]:
    return record.working_dir_scope, record.working_dir_host, record.working_dir_pool


async def test_a_directory_is_on_this_host_unless_machines_share_it(tmp_path: Path, work: Path) -> None:
    host, plan = socket.gethostname(), Agent().sections()
    alone = open_machine(tmp_path)
    together = open_machine(tmp_path, labels={"pool": "big"}, shared_paths=[str(work)])
    below = work / "below"
    below.mkdir()

    made = await alone.sessions.create(plan=plan, working_dir=work)
    assert place(made) == ("host", host, None)
    assert place(alone.sessions.get(made.session_id)) == place(made)
    assert place(await together.sessions.create(plan=plan, working_dir=below)) == ("shared", host, "big")
    assert place(await together.sessions.create(plan=plan, working_dir=tmp_path)) == ("host", host, "big")
    beside = Path(f"{work}/../work-not-shared")
    assert place(await together.sessions.create(plan=plan, working_dir=beside)) == ("host", host, "big")
    pooled = await together.sessions.create(plan=plan, working_dir=tmp_path, working_dir_scope="pool")
    assert place(pooled) == ("pool", host, "big")

    for scope, told in (("shared", "is not below a path that machines share"), ("pool", "is in no pool")):
        with pytest.raises(SessionStateError, match=told):
            await alone.sessions.create(plan=plan, working_dir=tmp_path, working_dir_scope=scope)
    with pytest.raises(SessionStateError, match="working_dir_scope: Input should be 'host', 'pool' or 'shared'"):
        await alone.sessions.create(plan=plan, working_dir=tmp_path, working_dir_scope="galaxy")


async def test_the_scope_is_changed_alone_or_with_the_directory_and_children_inherit_it(
    tmp_path: Path, work: Path
) -> None:
    agent = Agent(
        [{"tool_calls": [{"name": "task", "arguments": {"agent": "helper", "instruction": "Help."}}]}, "Done."],
        tools=[{"module": "tool-task"}],
        agents={"helper": {"content": "Help.", "providers": Agent(["Helped."]).sections()["providers"]}},
    )
    home = open_machine(tmp_path, labels={"pool": "big"}, shared_paths=[str(work)])
    host = socket.gethostname()
    made = await home.sessions.create(plan=agent.sections(), working_dir=tmp_path)

    changed = await home.sessions.update(made.session_id, working_dir_scope="pool")
    assert place(changed) == ("pool", host, "big")
    with pytest.raises(SessionStateError, match="is not below a path"):
        await home.sessions.update(made.session_id, working_dir_scope="shared")
    moved = await home.sessions.update(made.session_id, working_dir=str(work))
    assert place(moved) == ("shared", host, "big")
    async with home.sessions.resume(made.session_id) as session:
        changed = await home.sessions.update(made.session_id, working_dir=str(tmp_path), working_dir_scope="pool")
        assert place(changed) == ("pool", host, "big")
        await session.execute("Ask the helper.")
    (child,) = [record for record in home.sessions.list().sessions if record.parent_session_id]
    assert place(child) == ("pool", host, "big")
    assert place(await home.sessions.fork(made.session_id)) == ("pool", host, "big")


def test_a_directory_of_another_machine_stays_there_when_its_scope_changes() -> None:
    here = Machine("here", "small", (Path("/srv"),))
    fields = {"session_id": "s", "created_at": "2026-01-01T00:00:00Z", "working_dir": "/srv/x"}
    elsewhere = SessionRecord(**fields, working_dir_host="there", working_dir_pool="big")

    assert here.with_directory_of(elsewhere).place_of("/srv/x", "pool") == {
        **{"working_dir_scope": "pool", "working_dir_host": "there", "working_dir_pool": "big"}
    }
    assert here.with_directory_of(SessionRecord(**fields)) == here
