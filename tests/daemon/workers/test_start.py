"""How workers come to be: as forks of a template, or as programs of their own, which makes no difference to them."""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio
from agents_at_work import call
from worker_bench import FAULTS, PROMPT, WorkerBench

from amplifier_system.process_table import all_pids, stat_of
from amplifier_system.processes import ProcessTree
from amplifierd.workers.json_rpc import Peer
from amplifierd.workers.worker_start import WorkerStart

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is executed"),
]


@pytest.fixture(scope="module", autouse=True)
def shared_template() -> None:
    """Share none: here it is seen how a daemon starts its own."""


class Started:
    """A worker without a home. What is in `connections` is closed after each test, which ends the workers."""

    connections: ClassVar[list[socket.socket]] = []

    def __init__(self, tree: ProcessTree, connection: socket.socket) -> None:
        self.tree, self._connection, self._proc = tree, connection, Path(f"/proc/{tree.pid}")

    @classmethod
    async def by(cls, start: WorkerStart) -> "Started":
        ours, theirs = socket.socketpair()
        cls.connections.append(ours)
        output = os.open(os.devnull, os.O_WRONLY)
        try:
            with theirs:
                return cls(await start.start(theirs.fileno(), output), ours)
        finally:
            os.close(output)

    @property
    def is_forked(self) -> bool:
        return b"amplifierd.workers.template" in self._arguments()

    def _arguments(self) -> list[bytes]:
        return (self._proc / "cmdline").read_bytes().split(b"\0")[:-1]

    async def facts(self) -> dict[str, Any]:
        """Return what the system says about it once it answers."""
        peer = await Peer.connect(self._connection.dup())
        try:
            with pytest.raises(Exception, match="no home"):
                await peer.call("load", session_id="none", environment={})
        finally:
            peer.close()
        stat = stat_of(self.tree.pid)
        variables = dict(one.split(b"=", 1) for one in (self._proc / "environ").read_bytes().split(b"\0")[:-1])
        marker = self.tree.marker.encode()
        status = dict(line.split(":\t", 1) for line in (self._proc / "status").read_text().splitlines() if "\t" in line)
        return {
            "parent": int(stat[1]),
            "leads": (int(stat[2]), int(stat[3])) == (self.tree.pid, self.tree.pid),
            "names": self._arguments()[-2:] == [str(os.getpid()).encode(), marker],
            "variables": {name: value for name, value in variables.items() if name != marker},
            "is_marked": marker in variables,
            "descriptors": sorted(map(_kind, (self._proc / "fd").iterdir())),
            **{name: status[name] for name in ("Threads", "SigBlk", "SigIgn", "SigCgt", "Umask")},
            "directory": (self._proc / "cwd").readlink(),
        }

    async def end(self) -> int:
        """Let it notice that there is nobody any more."""
        self._connection.close()
        return await self.tree.wait()


@pytest.fixture(autouse=True)
def closed_connections() -> Iterator[None]:
    yield
    while Started.connections:
        Started.connections.pop().close()


def _kind(descriptor: Path) -> str:
    return f"{descriptor.name if int(descriptor.name) < 3 else 'other'} {str(descriptor.readlink()).partition(':[')[0]}"


@pytest_asyncio.fixture(loop_scope="module")
async def start(request: pytest.FixtureRequest) -> AsyncIterator[WorkerStart]:
    """What starts workers; its parameter are the modules that the home needs."""
    start = WorkerStart(further=getattr(request, "param", ()))
    yield start
    await start.close()


def templates() -> set[int]:
    """Return the pids of the templates, and of what was forked from them, that this process has."""

    def is_template(pid: int) -> bool:
        try:
            parent = int(stat_of(pid)[1])
            return parent == os.getpid() and b"workers.template" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return {*filter(is_template, all_pids())}


@pytest.fixture
def others() -> set[int]:
    """What other tests of this process have at work."""
    return templates()


@pytest.mark.parametrize("start", [(), ("fractions",)], ids=["as all are", "with a module of its home"], indirect=True)
async def test_a_forked_worker_is_like_one_that_was_executed(start: WorkerStart) -> None:
    forked, executed = await Started.by(start), await Started.by(WorkerStart(forks=False))
    assert (forked.is_forked, executed.is_forked) == (True, False)

    facts = await forked.facts()

    assert facts == await executed.facts()
    assert (facts["parent"], facts["leads"], facts["names"], facts["is_marked"]) == (os.getpid(), True, True, True)
    assert await forked.end() == await executed.end() == -signal.SIGKILL


async def test_a_template_that_is_gone_is_replaced_and_its_workers_stay(others: set[int], start: WorkerStart) -> None:
    first = await Started.by(start)
    (template,) = templates() - others - {first.tree.pid}
    os.kill(template, signal.SIGKILL)

    second = await Started.by(start)
    third = await Started.by(start)

    assert (second.is_forked, third.is_forked) == (False, True)
    assert first.tree.returncode is None
    for worker in (first, second, third):
        assert await worker.end() == -signal.SIGKILL


async def test_closing_ends_the_template_and_no_worker(others: set[int], start: WorkerStart) -> None:
    worker = await Started.by(start)
    (template,) = templates() - others - {worker.tree.pid}

    await start.close()

    assert template not in all_pids()
    assert (await worker.facts())["parent"] == os.getpid()
    await worker.end()


async def test_where_imports_start_threads_workers_are_executed(
    start: WorkerStart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    workers = [await Started.by(start) for _ in range(2)]

    assert [worker.is_forked for worker in workers] == [False, False]
    for worker in workers:
        await worker.end()


async def test_a_worker_has_the_environment_of_the_moment_in_which_it_starts(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.run((await bench.session())[0])
    monkeypatch.setenv("SET_LATER", "1")
    script = [{**call("fault", fault="environment"), "when": {"contains": PROMPT}}, "Done."]
    session_id, folder = await bench.session(script, tools=[FAULTS, {"module": "tool-filesystem"}])

    await bench.run(session_id, PROMPT)

    assert "SET_LATER" in (folder / "environment").read_text()
