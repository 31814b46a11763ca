"""The files and frames of ours that lie on four roads, counted while they are walked.

    python scripts/trace_roads.py [--files] [--python OTHER/.venv/bin/python] [--json]

A profile hook runs in every process: of `amplifier run`, of a daemon and its worker that are sent a turn, and of a
compile. At the milestones of a road it takes the stack, through the tasks and threads that led there. `road` counts the
files on these stacks, `depth` the frames of the deepest one, and `touched` all files of which any function ran.
`--python` is the interpreter of another checkout, to compare with.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

PROMPT = "hi"
PROFILE = "foundation/offline"
OUT = "AMPLIFIER_ROADS"
_OURS = ("/src/amplifier", "/modules/")
_BODIES = {"<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"}

STARTS = ("RequestGuard.__call__", "WorkerMethods.submit")
"""What ran in a process before one of these, and what is around it, is not counted: a daemon is up when it is asked."""

MILESTONES = {
    "run": ("ExecutionRunner.start", "AmplifierSession.initialize", "MockProvider.complete"),
    "turn": ("WorkerProcess.call", "MockProvider.complete", "Outbox.put_event", "EventStreamResponse._write"),
    "compile": ("resolve_profile", "inspect", "ResourceLocator.locate", "Compilation.run", "publish", "Build.of"),
}
"""The functions at which the stack of a road is taken."""


# --- the hook, in every process


class Trace:
    """What one process ran; written down whenever a milestone is reached."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._wanted = {name for names in MILESTONES.values() for name in names}
        self._touched: dict[str, None] = {}
        self._tasks: dict[int, list[str]] = {}
        self._pid = os.getpid()

    def hook(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or os is None:  # at the end of the interpreter
            return
        name = _place(frame.f_code.co_filename)
        if name is None or frame.f_code.co_name in _BODIES:
            return
        called = frame.f_code.co_qualname
        if called in STARTS or os.getpid() != self._pid:
            self._pid = os.getpid()
            self._touched.clear()
        self._touched[name] = None
        if called in self._wanted:
            self._write(called, self._stack(frame))

    def factory(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **more)
        self._tasks[id(task)] = self._stack(sys._getframe(1))
        return task

    def _stack(self, frame: FrameType | None) -> list[str]:
        """The frames of ours that led here, outermost first, with those that began the task."""
        found: list[str] = []
        while frame is not None:
            name = _place(frame.f_code.co_filename)
            if name is not None and frame.f_code.co_name not in _BODIES:
                found.append(f"{name}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        found.reverse()
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        return [*self._tasks.get(id(task), ()), *found]

    def _write(self, called: str, stack: list[str]) -> None:
        line = {"at": called, "stack": stack, "touched": [*self._touched]}
        with (self._directory / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def _place(filename: str) -> str | None:
    """The name of a file of ours, as it stands in the repository."""
    for part in _OURS:
        at = filename.find(part)
        if at >= 0:
            return filename[at + 1 :]
    return None


def install() -> None:
    """Trace this process from now on; what it forks goes on tracing."""
    trace = Trace(os.environ[OUT])
    created = asyncio.BaseEventLoop.__init__

    def created_with_factory(self: asyncio.BaseEventLoop) -> None:
        created(self)
        self.set_task_factory(trace.factory)

    asyncio.BaseEventLoop.__init__ = created_with_factory  # type: ignore[assignment, method-assign]
    threading.setprofile(trace.hook)
    sys.setprofile(trace.hook)


# --- walking the roads

_HOOK = """\
import sys
sys.path.insert(0, {scripts!r})
import trace_roads
sys.path.pop(0)
trace_roads.install()
"""

_COMPILE = """\
import asyncio, sys
import amplifierd
home = amplifierd.open_home(sys.argv[1], offline=True)
asyncio.run(home.profiles.compile(sys.argv[2]))
"""


def walked(road: str, python: str, walk: Callable[[str, Path, dict[str, str]], None]) -> dict[str, Any]:
    """Walk a road in a home of its own, and count."""
    with tempfile.TemporaryDirectory(dir=Path.cwd().parent, prefix=".roads-") as folder:
        place = Path(folder)
        hook, out, work = place / "hook", place / "out", place / "work"
        for directory in (hook, out, work):
            directory.mkdir()
        (hook / "sitecustomize.py").write_text(_HOOK.format(scripts=str(Path(__file__).parent)))
        plain = {**os.environ, "AMPLIFIERD_HOME": str(place / "home"), "HOME": str(place)}
        prepared = [python, "-c", _COMPILE, str(place / "home"), PROFILE]
        if road != "compile":
            subprocess.run(prepared, cwd=work, env=plain, check=True, timeout=120)
        walk(python, work, {**plain, "PYTHONPATH": str(hook), OUT: str(out)})
        return counted(road, [json.loads(line) for file in out.iterdir() for line in file.read_text().splitlines()])


def counted(road: str, lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    reached: dict[str, dict[str, Any]] = {}
    touched: dict[str, None] = {}
    for line in lines:
        if line["at"] in MILESTONES[road]:
            first = reached.setdefault(line["at"], line)
            if len(line["stack"]) > len(first["stack"]):
                reached[line["at"]] = line
            touched |= dict.fromkeys(line["touched"])
    stacks = [from_start(line["stack"]) for line in reached.values()]
    files = {frame.partition(":")[0] for stack in stacks for frame in stack}
    deepest = max(map(len, stacks), default=0)
    missing = [name for name in MILESTONES[road] if name not in reached]
    return {
        "road": len(files),
        "depth": deepest,
        "touched": len(touched),
        "files": sorted(files),
        "not reached": missing,
    }


def from_start(stack: list[str]) -> list[str]:
    starts = [index for index, frame in enumerate(stack) if frame.partition(":")[2] in STARTS]
    return stack[starts[-1] :] if starts else stack


def run_command(python: str, work: Path, environment: dict[str, str]) -> None:
    command = [python, "-m", "amplifier_cli", "run", "--offline", "--profile", PROFILE, PROMPT]
    subprocess.run(command, cwd=work, env=environment, check=True, timeout=120, stdout=subprocess.DEVNULL)


def compile_profile(python: str, work: Path, environment: dict[str, str]) -> None:
    command = [python, "-c", _COMPILE, environment["AMPLIFIERD_HOME"], PROFILE]
    subprocess.run(command, cwd=work, env=environment, check=True, timeout=120)


def post_turn(python: str, work: Path, environment: dict[str, str]) -> None:
    """Serve the home, create a session, and send it a prompt whose events are streamed."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    home = Path(environment["AMPLIFIERD_HOME"])
    command = [python, "-m", "amplifierd", "serve", "--port", "0", "--offline"]
    with subprocess.Popen(command, cwd=work, env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            url, token = _served(home, daemon)

            def post(path: str, body: dict[str, Any], accept: str) -> str:
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": accept}
                request = Request(f"{url}/api/v1{path}", json.dumps(body).encode(), headers)
                try:
                    with urlopen(request, timeout=60) as answer:
                        return str(answer.read().decode())
                except HTTPError as error:
                    raise SystemExit(f"POST {path}: {error.read().decode()}") from error

            brief = {"profile_name": PROFILE, "working_dir": str(work)}
            session = json.loads(post("/sessions", brief, "application/json"))["session_id"]
            post(f"/sessions/{session}/execute", {"prompt": PROMPT}, "text/event-stream")
        finally:
            daemon.terminate()
            daemon.wait(30)


def _served(home: Path, daemon: subprocess.Popen[bytes]) -> tuple[str, str]:
    import time

    for _ in range(600):
        for file in home.glob("state/**/*.json"):
            said = json.loads(file.read_text() or "{}") if "daemon" in file.name or "run" in file.name else {}
            if isinstance(said, dict) and "url" in said and (home / "config/token").exists():
                return str(said["url"]), (home / "config/token").read_text().strip()
        if daemon.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("the daemon did not start")


ROADS = {"run": run_command, "turn": post_turn, "compile": compile_profile}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--files", action="store_true", help="name the files, too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("roads", nargs="*", default=[*ROADS])
    options = parser.parse_args()
    found = {road: walked(road, options.python, ROADS[road]) for road in options.roads}
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'':10}{'road':>6}{'depth':>7}{'touched':>9}")
    for road, figures in found.items():
        print(f"{road:10}{figures['road']:>6}{figures['depth']:>7}{figures['touched']:>9}")
        if figures["not reached"]:
            print(f"{'':10}not reached: {', '.join(figures['not reached'])}")
        if options.files:
            print("".join(f"{'':12}{name}\n" for name in figures["files"]), end="")


if __name__ == "__main__":
    main()
