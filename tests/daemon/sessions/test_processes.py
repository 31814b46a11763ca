"""Several processes on one home: each has its own sessions, and a session has one process at a time."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_python
from crashing_sessions import make_place, open_home, plan

from amplifier_core.utils.tool_messages import calls_in, results_in
from amplifierd.exceptions import SessionHeldError

PROGRAM = Path(__file__).parents[2] / "stand_ins/session_process.py"


class SessionProcess:
    """A running `session_process.py`."""

    def __init__(self, folder: Path, session_id: str, how: str) -> None:
        command = [sys.executable, PROGRAM, folder, session_id, how]
        self._process = warm_python.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def send(self, prompt: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{prompt}\n")
        self._process.stdin.flush()

    def wait_for(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Read on until it says something."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if wanted(said):
                return said
        raise AssertionError("the process has ended")

    def opening(self) -> dict[str, Any]:
        return self.wait_for(lambda said: "held" in said or "error" in said)

    def outcome(self) -> dict[str, Any]:
        return self.wait_for(lambda said: "result" in said or "error" in said)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=30) == 0

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


Start = Callable[..., SessionProcess]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    make_place(folder)
    return folder


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    processes: list[SessionProcess] = []

    def begin(session_id: str, how: str = "create") -> SessionProcess:
        processes.append(SessionProcess(place, session_id, how))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


def test_five_processes_work_on_sessions_of_one_home_at_once(place: Path, start: Start) -> None:
    processes = [start(f"s{number}") for number in range(5)]
    for number, process in enumerate(processes):
        process.send(f"quick{number}t0: note look")

    assert [process.outcome() for process in processes] == [{"result": "completed"}] * 5
    for process in processes:
        process.end()

    home = open_home(place)
    assert {record.session_id for record in home.sessions.list().sessions} == {f"s{number}" for number in range(5)}
    for number in range(5):
        roles = [message["role"] for message in home.sessions.messages(f"s{number}")]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    begun = [line for line in (place / "work/runs.txt").read_text().splitlines() if line.startswith("begin")]
    assert len(begun) == 10


async def test_of_five_processes_one_holds_a_session_and_the_others_are_told_which(place: Path, start: Start) -> None:
    home = open_home(place)
    await home.sessions.create(plan=plan(place), working_dir=place / "work", session_id="wanted")

    processes = [start("wanted", "resume") for _ in range(5)]
    said = {process.pid: process.opening() for process in processes}

    (holder,) = [pid for pid, answer in said.items() if "held" in answer]
    for pid, answer in said.items():
        if pid != holder:
            assert answer["error"] == "SessionHeldError"
            assert f"process {holder} " in answer["message"]
    hold = home.sessions.holder("wanted")
    assert hold is not None
    assert hold.holder.pid == holder
    assert home.sessions.get("wanted").status == "active"
    next(process for process in processes if process.pid == holder).end()
    async with home.sessions.resume("wanted") as session:
        assert (await session.execute("quick1t0: look")).status == "completed"


async def test_a_stopped_process_whose_session_was_taken_over_runs_and_writes_nothing_more(
    place: Path, start: Start
) -> None:
    stopped = start("taken")
    stopped.send("slow1t0: note send")
    stopped.wait_for(lambda said: said.get("event") == "llm:stream_block_delta")
    os.kill(stopped.pid, signal.SIGSTOP)
    home = open_home(place)

    async with home.sessions.resume("taken", take_over=True) as session:
        os.kill(stopped.pid, signal.SIGCONT)
        result = await session.execute("quick2t0: look")
        assert stopped.outcome()["error"] == "HoldLostError"
        again = await session.execute("quick2t1: look")

    assert (result.status, again.status) == ("completed", "completed")
    runs = (place / "work/runs.txt").read_text().splitlines()
    assert [line for line in runs if line.startswith("begin")] == ["begin quick2t0.0", "begin quick2t1.0"]
    _assert_whole(home, "taken", turns=[1, 2, 3])


async def test_the_children_of_a_session_that_was_taken_over_stop_as_well(place: Path, start: Start) -> None:
    stopped = start("taken")
    stopped.send("quick1t0: task")
    child = stopped.wait_for(
        lambda said: said.get("event") == "llm:stream_block_delta" and said["session_id"] != "taken"
    )["session_id"]
    os.kill(stopped.pid, signal.SIGSTOP)
    home = open_home(place)

    async with home.sessions.resume("taken", take_over=True) as session:
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.outcome()["error"] == "HoldLostError"
        assert [(call.tool_name, call.state) for call in session.repaired.calls] == [("task", "unknown")]
        resume = session.runner.kernel.session.coordinator.get_capability("session.resume")
        assert (await resume(child, "quick2t0: look"))["status"] == "success"

    runs = (place / "work/runs.txt").read_text().splitlines()
    assert [line for line in runs if line.startswith("begin")] == ["begin quick2t0.0"]
    _assert_whole(home, child, turns=[1, 2])


async def test_a_child_is_not_opened_or_changed_while_another_process_has_its_root(place: Path, start: Start) -> None:
    holder = start("root")
    holder.send("quick1t0: task")
    assert holder.outcome() == {"result": "completed"}
    home = open_home(place)
    (child,) = home.sessions.children("root")

    with pytest.raises(SessionHeldError, match=f"process {holder.pid} "):
        await home.sessions.resume(child.session_id)
    with pytest.raises(SessionHeldError, match=f"process {holder.pid} "):
        await home.sessions.rename(child.session_id, "Mine")
    assert home.sessions.messages(child.session_id)

    async with home.sessions.resume(child.session_id, take_over=True) as taken:
        holder.send("quick1t1: look")
        assert holder.outcome()["error"] == "HoldLostError"
        assert (await taken.execute("quick2t0: look")).status == "completed"
    _assert_whole(home, child.session_id, turns=[1, 2])


def _assert_whole(home: Any, session_id: str, *, turns: list[int]) -> None:
    """See that messages and events are those of one turn after another, and every call has its result."""
    messages, events = home.sessions.messages(session_id), home.sessions.events(session_id)
    assert list(dict.fromkeys(message["turn"] for message in messages)) == turns
    assert sorted(message["turn"] for message in messages) == [message["turn"] for message in messages]
    calls = [call.id for message in messages for call in calls_in(message)]
    assert len(calls) == sum(len(results_in(message) or ()) for message in messages)
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))
    begun = [event["event"] for event in events if event["event"] in ("user_message:saved", "execution:done")]
    assert begun == ["user_message:saved", "execution:done"] * len(turns)
