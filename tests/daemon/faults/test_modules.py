"""Modules that end, block or leak take down nothing but the turn that they ran in."""

from __future__ import annotations

import os
import signal
import time

import httpx2
from conversation import PROMPT, Conversation
from hurt_daemon import HurtDaemon, until

BLOCKED_S = 3.0


def worker_of(conversation: Conversation) -> int:
    return int((conversation.folder / "begun").read_text())


def test_modules_are_imported_by_workers_and_not_by_the_daemon(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "imports", "environment")
    assert conversation.run(PROMPT).status_code == 200
    client = daemon.client()
    looks = [client.get("/modules/tool-bash"), client.get(f"/sessions/{conversation.session_id}/tools")]
    looks.append(client.post("/validate/module", json={"module_id": "tool-todo"}))
    looks.append(client.post("/profiles/foundation/offline/compile", json={"force": True}))
    profile = {"profile_name": "foundation/offline"}
    stored = client.post("/sessions", json={**profile, "working_dir": str(daemon.folder("stored"))}).json()
    path = f"/sessions/{stored['session_id']}"
    looks.append(client.post(f"{path}/change-agent", json={"max_iterations": 3}))
    looks.append(client.post(f"{path}/change-profile", json=profile))

    assert [answer.status_code for answer in looks] == [200] * 6, [answer.text for answer in looks]
    assert "amplifier_module_tool_faults" in daemon.imported(worker_of(conversation))
    assert daemon.imported(daemon.pid) == set()


def test_a_module_that_ends_the_process_ends_its_turn(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "exit", "exit")

    answer = conversation.run(PROMPT)

    assert (answer.status_code, answer.json()["code"]) == (499, "aborted")
    conversation.check()


def test_a_module_that_blocks_holds_up_nobody_else(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "block", "block")
    turn, begun = conversation.misbehave(), time.monotonic()

    while time.monotonic() - begun < BLOCKED_S:
        assert httpx2.get(f"{daemon.url}/health").status_code == 200
        assert daemon.client().get(f"/sessions/{conversation.session_id}").json()["activity"] == "executing"
        time.sleep(0.1)
    workers = daemon.client().get("/workers").json()["workers"]
    assert [one["status"] for one in workers if one["pid"] == worker_of(conversation)] == ["blocked"]
    (conversation.folder / "go").touch()

    assert conversation.done(turn)["status"] == "completed"
    conversation.check()


def test_a_module_that_leaks_loses_its_worker_and_no_turn(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "leak", "leak", megabytes=300)

    assert conversation.run(PROMPT).status_code == 200
    until(lambda: worker_of(conversation) not in daemon.workers())

    conversation.check()


def test_a_killed_worker_fails_its_turn_with_a_problem(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "killed")
    turn = conversation.misbehave()

    os.kill(worker_of(conversation), signal.SIGKILL)

    done = conversation.done(turn)
    assert (done["status"], done["error"]["code"]) == ("failed", "aborted")
    conversation.check()
