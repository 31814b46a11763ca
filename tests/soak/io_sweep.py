"""Lets the n-th call that changes a file fail, for every n, and looks each time at what is left.

    python tests/soak io_sweep                                    every call of every act, in every mode
    python tests/soak io_sweep --act turn --mode torn --at 17     one of them, as a failure is reported
    python tests/soak io_sweep --points 12                        some of each act, the modes in turn

What was shown has to be stored, what was stored before has to be there, and the next turn has to work: in the same
process unless it crashed, and in the next one. Every act runs in a process of its own on a copy of the same home.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import io_faults
from crash_evidence import Crash, Evidence
from crash_soak import Moment, kill_worker
from crashing_sessions import MODULES, make_place, open_home, run_turns
from kill_points import import_modules_of

from amplifier_core.exceptions import AmplifierError
from amplifierd.home import Home

SESSION = "swept-0"
PROFILE = "local/swept"
PROMPT, NEXT, LATER = "quick7001t1: note read_file", "quick7002t1: look", "quick7003t1: look"
FORESEEN = (AmplifierError, OSError)  # what an act may raise when its calls fail

Show = Callable[[dict[str, Any]], object]
Json = dict[str, Any]


@dataclass(frozen=True)
class Act:
    """Something that is swept.

    `prepare` makes the folder that every run gets a copy of, `run` is what calls fail in, `look` sees afterwards that
    nothing is lost, in another process.
    """

    prepare: Callable[[Path], None]
    run: Callable[[Home, Path, Show], Awaitable[object]]
    look: Callable[[Path, Sequence[Json]], Coroutine[Any, Any, object]]


# --- a turn with tools


def prepare_session(folder: Path) -> None:
    """Make a session that has run some turns."""
    make_place(folder)
    run_turns(folder, SESSION, 0, os.open(os.devnull, os.O_WRONLY))
    remember(folder)


def remember(folder: Path) -> None:
    """Write down what is stored, which has to be there for good."""
    home = open_home(folder)
    stored = {"events": home.sessions.events(SESSION), "messages": home.sessions.messages(SESSION)}
    (folder / "before.json").write_text(json.dumps(stored))


async def run_turn(home: Home, folder: Path, show: Show) -> None:
    async with home.sessions.resume(SESSION) as session:
        session.subscribe(lambda event: bool(show(event)))
        result = await session.execute(PROMPT)
        show({"event": "returned", "status": result.status, "response": result.response})


async def look_at_session(folder: Path, shown: Sequence[Json]) -> None:
    """See that the session has everything that it had and that was shown of it, and that its next turn works."""
    before, home = json.loads((folder / "before.json").read_text()), open_home(folder)
    events, messages = home.sessions.events(SESSION), home.sessions.messages(SESSION)
    assert events[: len(before["events"])] == before["events"], "events are lost that were stored before"
    assert messages[: len(before["messages"])] == before["messages"], "messages are lost that were stored before"
    stored = {(event["seq"], event["event"]) for event in events}
    told = {(e["sequence"], e["event"]) for e in shown if e.get("session_id") == SESSION and not is_passing(e)}
    assert told <= stored, f"shown and not stored: {sorted(told - stored)}"
    texts = json.dumps([message["content"] for message in messages])
    for event in shown:
        if event["event"] == "returned" and event["status"] == "completed":
            assert json.dumps(event["response"]) in texts or event["response"] in texts, "an answer is lost"
    evidence = Evidence(folder, Crash(shown, time.monotonic()), frozenset())
    await evidence.check(SESSION)
    await run_next(home, LATER)
    assert home.sessions.get(SESSION).message_count == len(home.sessions.messages(SESSION))


def is_passing(event: Json) -> bool:
    """Say whether an event is one that is never stored."""
    return str(event["event"]).endswith("delta") or event.get("sequence") is None


async def run_next(home: Home, prompt: str) -> None:
    """Run a turn that has to work."""
    async with home.sessions.resume(SESSION) as session:
        result = await session.execute(prompt)
    assert result.status == "completed", result


# --- a compile


def prepare_profile(folder: Path) -> None:
    """Make a profile with a build and a session on it, and change the profile."""
    prepare_session(folder)
    home = open_home(folder)
    file = home.paths.own_profiles / "swept.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(profile(folder, "Be brief."))
    asyncio.run(home.profiles.compile(PROFILE))
    file.write_text(profile(folder, "Be brief, and kind."))


def profile(folder: Path, instruction: str) -> str:
    provider = {"module": "provider-rehearsed", "source": str(MODULES / "provider-rehearsed")}
    provider["config"] = {"complaints": str(folder.parent / "complaints.txt")}  # type: ignore[assignment]
    head = {"profile": {"name": "swept", "version": "1.0.0", "description": "Swept", "schema_version": 2}}
    session = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}
    sections = {**head, "session": session, "providers": [provider], "tools": [{"module": "tool-filesystem"}]}
    return f"---\n{json.dumps(sections)}\n---\n\n{instruction}\n"


async def compile_profile(home: Home, folder: Path, show: Show) -> None:
    build = await home.profiles.compile(PROFILE)
    show({"event": "compiled", "build_id": build.build_id})


async def look_at_profile(folder: Path, shown: Sequence[Json]) -> None:
    home = open_home(folder)
    for event in shown:
        if event["event"] == "compiled":
            assert home.profiles.find_build(PROFILE, event["build_id"]) is not None, "a build that was shown is gone"
    build = await home.profiles.compile(PROFILE)
    status = await home.profiles.verify(PROFILE)
    assert (status.status, status.build_id) == ("fresh", build.build_id), status
    async with home.sessions.open(PROFILE, working_dir=folder / "work") as session:
        result = await session.execute("quick3t3: read_file")
    assert result.status == "completed", result
    await look_at_session(folder, [])


# --- an export


async def export_session(home: Home, folder: Path, show: Show) -> None:
    await home.sessions.export(SESSION, folder / "home" / "exported.session")
    show({"event": "exported"})


def prepare_export(folder: Path) -> None:
    prepare_session(folder)
    home = open_home(folder)
    asyncio.run(home.sessions.export(SESSION, folder / "home" / "exported.session"))


async def look_at_export(folder: Path, shown: Sequence[Json]) -> None:
    """See that the file is whole, the earlier one or the new one."""
    other = open_home(folder / "other")
    imported = await other.sessions.import_(folder / "home" / "exported.session")
    before = json.loads((folder / "before.json").read_text())
    assert len(other.sessions.messages(imported.record.session_id)) >= len(before["messages"])
    await look_at_session(folder, [])


# --- a takeover


def prepare_takeover(folder: Path) -> None:
    """Make a session whose process was killed in a turn."""
    make_place(folder)
    run_turns(folder, SESSION, 0, os.open(os.devnull, os.O_WRONLY))
    moment = Moment("tool:intent", 1, 0.0)
    next(n for n in range(1, 1000) if kill_worker(folder, SESSION, n, moment) is not None)
    remember(folder)


async def take_over(home: Home, folder: Path, show: Show) -> None:
    home.sessions.subscribe(lambda event: bool(show(event)))
    interrupted = await home.sessions.take_over(SESSION)
    show({"event": "taken over", "turn": interrupted.turn if interrupted else None})
    async with home.sessions.resume(SESSION):
        pass


async def look_at_taken_over(folder: Path, shown: Sequence[Json]) -> None:
    home = open_home(folder)
    await home.sessions.take_over(SESSION)
    await look_at_session(folder, shown)
    ends = [event["correlation_id"] for event in home.sessions.events(SESSION) if event["event"] == "execution:done"]
    assert len(ends) == len(set(ends)), f"a turn ended twice: {ends}"


ACTS = {
    "turn": Act(prepare_session, run_turn, look_at_session),
    "compile": Act(prepare_profile, compile_profile, look_at_profile),
    "export": Act(prepare_export, export_session, look_at_export),
    "takeover": Act(prepare_takeover, take_over, look_at_taken_over),
}


# --- the sweep


class Sweep:
    """One act, its home, and the processes in which it is run."""

    def __init__(self, name: str, folder: Path) -> None:
        self.act, self._folder, self._template = ACTS[name], folder / "swept", folder / "template"
        if not self._forked(lambda show: self.act.prepare(self._folder))[1]:
            raise SystemExit(f"{name} cannot be prepared")
        self._opened: Home | None = None
        self._folder.rename(self._template)  # what is stored in it names its place, which every copy has

    def count(self) -> int:
        """Return how many calls the act makes that change a file."""

        def counted(show: Show) -> None:
            io_faults.count(self._home())
            asyncio.run(self._run(show))
            show({"event": "counted", "calls": io_faults.disarm()})

        self._renew()
        shown, _ = self._forked(counted)
        return next(event["calls"] for event in shown if event["event"] == "counted")

    def run(self, mode: str, number: int) -> str | None:
        """Let one call fail; returns what is wrong afterwards, None if nothing is."""
        self._renew()
        shown, is_done = self._forked(lambda show: asyncio.run(self._faulted(mode, number, show)))
        if not is_done and mode not in io_faults.CRASHES:
            return f"the process did not go on after {_failed(shown)}"
        told = [event for event in shown if event["event"] != "failed"]
        _, is_whole = self._forked(lambda show: asyncio.run(self.act.look(self._folder, told)))
        return None if is_whole else f"not whole after {_failed(shown) or 'the end of the process'}"

    async def _faulted(self, mode: str, number: int, show: Show) -> None:
        io_faults.arm(self._home(), mode, number)
        try:
            await self._run(show)
        except FORESEEN as error:
            show({"event": "raised", "error": f"{type(error).__name__}: {error}"})
        finally:
            io_faults.disarm()
            show({"event": "failed", "call": io_faults.failed_call()})
        await self._again()

    async def _run(self, show: Show) -> None:
        self._opened = open_home(self._folder)
        await self.act.run(self._opened, self._folder, show)
        home, self._opened = self._opened, None
        await home.sessions.close()

    async def _again(self) -> None:
        """Go on in the same process: the act is done again, and a turn is run."""
        home = self._opened or open_home(self._folder)
        if self.act.run is not run_turn:
            await self.act.run(home, self._folder, lambda event: None)
        await run_next(home, NEXT)
        await home.sessions.close()

    def _home(self) -> Path:
        return self._folder / "home"

    def _renew(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._template, self._folder, symlinks=True)

    def _forked(self, act: Callable[[Show], object]) -> tuple[list[Json], bool]:
        """Do something in a child; returns what it showed, and whether it came to its end."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reader)
                act(lambda event: _write(writer, event))
                status = 0
            except BaseException:  # noqa: BLE001 - the child ends here, whatever happened
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        os.close(writer)
        with os.fdopen(reader) as lines:
            shown = [json.loads(line) for line in lines if line.endswith("\n")]
        return shown, os.waitpid(child, 0)[1] == 0


def _write(output: int, event: Json) -> None:
    os.write(output, json.dumps({**event, "at": time.monotonic()}, default=str).encode() + b"\n")


def _failed(shown: Sequence[Json]) -> str:
    return next((f"{event['call']!r}" for event in shown if event["event"] == "failed"), "")


def points_of(name: str, given: argparse.Namespace, calls: int) -> Iterator[tuple[str, int]]:
    modes: Sequence[str] = given.mode or [*io_faults.MODES]
    if given.at:
        yield from ((mode, given.at) for mode in modes)
    elif given.points:  # evenly spread, the modes in turn, beginning with another one for each act
        first = [*ACTS].index(name)
        for place in range(given.points):
            yield modes[(place + first) % len(modes)], 1 + (2 * place + 1) * calls // (2 * given.points)
    else:
        yield from ((mode, number) for number in range(1, calls + 1) for mode in modes)


def sweep(name: str, folder: Path, given: argparse.Namespace) -> list[str]:
    """Sweep one act; returns what went wrong."""
    begun_s, swept = time.monotonic(), Sweep(name, folder)
    calls, runs, wrong = swept.count(), 0, list[str]()
    for mode, number in points_of(name, given, calls):
        runs += 1
        if (found := swept.run(mode, number)) is not None:
            wrong.append(f"--act {name} --mode {mode} --at {number}: {found}")
            sys.stderr.write(f"{wrong[-1]}\n")
    sys.stdout.write(f"{name}: {calls} calls, {runs} runs, {len(wrong)} wrong, {time.monotonic() - begun_s:.0f} s\n")
    sys.stdout.flush()
    return wrong


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--act", action="append", choices=ACTS)
    arguments.add_argument("--mode", action="append", choices=io_faults.MODES)
    arguments.add_argument("--at", type=int, help="let only this call fail")
    arguments.add_argument("--points", type=int, help="let only so many calls of each act fail")
    arguments.add_argument("--keep", action="store_true", help="keep the directory")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="amplifier-sweep-", dir="/var/tmp")).resolve()  # a sandbox has its own /tmp
    if not io_faults.is_loaded():
        variables = io_faults.environment(folder)
        if variables is None:
            raise SystemExit("no C compiler or no /proc: calls cannot be made to fail")
        os.execve(
            sys.executable,
            [sys.executable, str(Path(__file__).parent), Path(__file__).stem, *sys.argv[1:]],
            dict(variables),
        )
    rehearsal = folder / "rehearsal"
    make_place(rehearsal)
    import_modules_of(lambda: run_turns(rehearsal, SESSION, 0, os.open(os.devnull, os.O_WRONLY)))
    wrong = [found for name in given.act or ACTS for found in sweep(name, folder / name, given)]
    if not given.keep and not wrong:
        shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
