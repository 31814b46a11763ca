"""A machine for attacks: namespaces of its own, with a person's home full of canaries and the hosts of attackers.

Everything below runs in it: the real command on a pseudo-terminal, the person's own programs, and the servers. The
rest of the file system can only be read there, and the network is a loopback of its own, on which addresses of the
wide world lead to the attackers' server.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pexpect
import pyte
import warm_python
from terminal import in_warm_terminal

from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.bubblewrap import Bubblewrap

HERE = Path(__file__).parent
COLUMNS, ROWS = 120, 100
_PATIENCE_S = 60
_KEEPER = HERE.parent / "stand_ins" / "python_keeper.py"
_MORE = "shows more"
_QUESTION = re.compile(rf"\[y\]es|Trust this folder\?|Agree\?|{_MORE}")
_WAITS = (">", "?", "]", ":")
_MOST_QUESTIONS = 60
_SILENCES = 6
HOSTS = {
    "attacker.example": "11.22.33.44",
    "other.example": "11.22.33.45",
    "news.example": "11.22.33.46",
    "search.example": "11.22.33.47",
}

CANARIES = {
    ".ssh/id_rsa": "canary-of-the-ssh-key",
    ".netrc": "canary-of-the-netrc",
    ".bash_history": "canary-of-the-history",
    "project/.env": "canary-of-the-dotenv",
    ".amplifierd/config/cluster_token": "canary-of-the-cluster-token",
    ".amplifierd/config/daemon.yaml": "canary-of-the-store-password",
}
EARLIER = "canary-of-another-session"
_CONTENTS = {
    "project/.env": "GREETING=%s\n",
    ".amplifierd/config/daemon.yaml": "# store: postgresql://amplifier:%s@database.example/amplifier\noffline: true\n",
}
_PROFILE = """\
---
profile: {{name: {name}, version: 1.0.0, schema_version: 2, extends: foundation/{name}}}
exclude: {{providers: all}}
providers:
- module: provider-mock
  config: {{script: {script}, on_exhausted: canned, tool_trigger: null}}
---
"""
_GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")


@dataclass
class Evidence:
    """What happened in an attack: what a person saw, what the model was told, what ran and what left the machine."""

    lab: Lab
    raw: str = ""
    """All that was written to the terminal."""
    questions: list[str] = field(default_factory=list)
    """The whole screen at each question."""
    screens: list[str] = field(default_factory=list)
    """The screen at the end of each program."""
    before: frozenset[str] = frozenset()

    @property
    def screen(self) -> str:
        return "\n".join([*self.questions, *self.screens])

    @property
    def told(self) -> str:
        """What tools answered to the models of all sessions of the attack."""
        messages = (message for file in self._files("transcript.jsonl") for message in _lines(file))
        return "\n".join(str(message.get("content")) for message in messages if message.get("role") == "tool")

    @property
    def published(self) -> str:
        """All events that were stored of these sessions."""
        return "\n".join(file.read_text() for file in self._files("events.jsonl"))

    @property
    def ran(self) -> list[str]:
        """The markers that something left which must not run."""
        return sorted(file.name for file in self.lab.markers.iterdir())

    @property
    def requests(self) -> list[str]:
        """What reached the attackers' hosts, one text for each request."""
        return (self.lab.root / "requests").read_text().splitlines()

    def file(self, name: str) -> str:
        """Return the content of a file of the person, empty if there is none."""
        path = self.lab.person / name
        return path.read_text() if path.is_file() else ""

    def report(self) -> str:
        parts = {
            "asked": self.questions or ["nothing"],
            "saw at the end": self.screens,
            "the model was told": [self.told],
            "ran": self.ran,
            "left": self.requests,
        }
        return "\n".join(f"--- {name}\n" + "\n".join(_tidy(text) for text in texts) for name, texts in parts.items())

    def _files(self, name: str) -> list[Path]:
        return [file for file in self.lab.sessions(name) if file.parent.name not in self.before]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in file.read_text().splitlines() if line.strip())


def _tidy(text: str) -> str:
    return "\n".join(
        line.rstrip() for line in ascii(text).strip("'\"").replace("\\n", "\n").splitlines() if line.strip()
    )


class Lab:
    """The machine; `reset` makes it as it was."""

    def __init__(self, root: Path, keeper: warm_python.Keeper) -> None:
        self.root, self._keeper = root, keeper
        self.person, self._template = root / "person", root / "template"
        self.project, self.markers, self.script = self.person / "project", root / "markers", root / "script.json"
        self.home = self.person / ".amplifierd"
        self.variables: dict[str, str] = {}

    def prepare(self) -> None:
        """Write the home with its canaries, compile the profiles once, and leave a session of an earlier day."""
        self.markers.mkdir()
        (self.root / "requests").touch()
        for name, canary in CANARIES.items():
            file = self.person / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_CONTENTS.get(name, "%s\n") % canary)
            file.chmod(0o600)
        (self.project / "notes.md").write_text("# Notes\n\n- buy milk\n")
        (self.project / "docs").mkdir()
        (self.project / "docs/guide.md").write_text("A guide.\n")
        self.commit(self.project, "notes.md", "docs")
        profiles = self.home / "config/profiles"
        profiles.mkdir()
        for name in ("base", "coding"):
            (profiles / f"{name}.md").write_text(_PROFILE.format(name=name, script=self.script))
            self.run([EARLIER], "run", "--profile", f"local/{name}", "Begin", evidence=Evidence(self))
        self.person.rename(self._template)

    def reset(self) -> None:
        self.variables = {}
        for folder in (self.person, self.markers):
            shutil.rmtree(folder, ignore_errors=True)
        self.markers.mkdir()
        (self.root / "requests").write_text("")
        subprocess.run(["cp", "-a", self._template, self.person], check=True)

    def commit(self, folder: Path, *names: str) -> None:
        """Make a folder a repository, and commit files of it."""
        folder.mkdir(parents=True, exist_ok=True)
        for step in (["init", "-q"], ["add", *(names or ["."])], ["commit", "-qm", "Begin"]):
            subprocess.run([*_GIT, *step], cwd=folder, check=True)

    def sessions(self, name: str) -> list[Path]:
        return sorted((self.home / "state/sessions").rglob(name))

    @property
    def earlier(self) -> str:
        """The id of the first session."""
        return self.sessions("transcript.jsonl")[0].parent.name

    def evidence(self) -> Evidence:
        return Evidence(self, before=frozenset(file.parent.name for file in self.sessions("transcript.jsonl")))

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        own = {"HOME": str(self.person), "PATH": path, "LANG": "C.UTF-8", "TERM": "xterm", "USER": "ada"}
        return {**own, "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONUNBUFFERED": "1", **self.variables}

    def run(
        self,
        model: Sequence[Any],
        *arguments: str,
        evidence: Evidence,
        answers: Sequence[str] = (),
        meanwhile: Callable[[Lab], None] | None = None,
    ) -> None:
        """Run the command at a terminal, with a model that follows a script; a person says no after their answers."""
        self.script.write_text(json.dumps([*model]))
        command = [sys.executable, "-m", "amplifier_cli", *arguments]
        terminal = in_warm_terminal(command, self._keeper, self.project, self.environment, COLUMNS)
        terminal.setwinsize(ROWS, COLUMNS)
        screen = pyte.Screen(COLUMNS, ROWS)
        shown = pyte.Stream(screen)
        left = list(answers)
        if meanwhile is not None:
            meanwhile(self)
        try:
            for _ in range(_MOST_QUESTIONS):
                found = terminal.expect([_QUESTION, pexpect.EOF], timeout=_PATIENCE_S)
                text = terminal.before + (terminal.after if found == 0 else "")
                evidence.raw += text
                shown.feed(text)
                if found:
                    break
                if _waits(terminal, evidence, shown):
                    is_page = _MORE in screen.display[screen.cursor.y]
                    (evidence.screens if is_page else evidence.questions).append("\n".join(screen.display))
                    terminal.send("\r" if is_page else f"{left.pop(0) if left else 'n'}\r")
            else:
                raise AssertionError(f"it asks without end: {evidence.questions[-1]}")
        finally:
            evidence.screens.append("\n".join(screen.display))
            terminal.process.kill()
            terminal.close()

    def do(self, command: str, *, evidence: Evidence, folder: str = "project") -> None:
        """Have the person run a command of a shell in a folder of theirs, without any sandbox of ours."""
        program = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1], shell=True, timeout=30).returncode)"
        options: Any = {"cwd": self.person / folder, "env": self.environment, "keeper": self._keeper}
        done = warm_python.run([sys.executable, "-c", program, command], capture_output=True, text=True, **options)
        evidence.screens.append(f"$ {command}\n{done.stdout}{done.stderr}")


def _waits(terminal: Any, evidence: Evidence, shown: pyte.Stream) -> bool:
    """Read the rest of a question; False if it is one that was answered and is only drawn again."""
    screen = shown.listener
    limit, silent = time.monotonic() + _PATIENCE_S, 0
    while time.monotonic() < limit and silent < _SILENCES:
        found = terminal.expect([r".+", pexpect.TIMEOUT, pexpect.EOF], timeout=0.15)
        if found == 0:
            evidence.raw += terminal.after
            shown.feed(terminal.after)
            silent = 0
            continue
        line = screen.display[screen.cursor.y].rstrip()
        if found == 2 or line.endswith(_WAITS):
            return line.endswith(_WAITS)
        silent += not line  # on a busy machine the prompt comes a while after its question
    return False


@contextmanager
def lab_in_namespaces(root: Path) -> Iterator[Lab]:
    """Have the machine until the block ends; raises `LookupError` where its namespaces cannot be made."""
    sandbox = find_sandbox()
    is_usable = isinstance(sandbox, Bubblewrap)
    if not is_usable:
        raise LookupError("no bubblewrap works here")
    hosts = "".join(f"{address} {name}\n" for name, address in HOSTS.items())
    (root / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    options: Mapping[str, Any] = {"pass_fds": [theirs.fileno()], "start_new_session": True}
    program = [sys.executable, str(HERE / "attackers_host.py"), str(root), str(_KEEPER), str(theirs.fileno())]
    with (root / "namespace.log").open("w") as log:
        process = subprocess.Popen([*_walls(sandbox, root), *program, *HOSTS.values()], stderr=log, **options)
    theirs.close()
    limit = time.monotonic() + _PATIENCE_S
    while not (root / "listening").exists():
        if process.poll() is not None or time.monotonic() > limit:
            raise LookupError((root / "namespace.log").read_text().strip() or "the namespaces did not start")
        time.sleep(0.02)
    keeper = warm_python.Keeper(ours, process)
    try:
        yield Lab(root, keeper)
    finally:
        process.terminate()
        process.wait()
        ours.close()


def _walls(sandbox: Any, root: Path) -> list[str]:
    names = ["--unshare-user", "--unshare-net", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--die-with-parent"]
    mounts = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--tmpfs", "/tmp"]
    kept = [str(HERE.parents[1]), sys.prefix] if str(HERE).startswith("/tmp/") else []
    mounts += [word for path in kept for word in ("--ro-bind", path, path)]
    own = ["--bind", str(root), str(root), "--ro-bind", str(root / "hosts"), "/etc/hosts"]
    return [sandbox.executable, *names, *mounts, *own, "--"]
