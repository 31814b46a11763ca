"""Three hundred commands that try everything: the sandbox holds whatever a filter makes of them."""

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_bash.safety import SafetyProfile, SafetyValidator
from hostile_commands import Target, hostile_commands
from sandboxes import fingerprint, needs_sandbox, place_outside_tmp

from amplifier_core import ToolResult
from amplifier_kit.approval import CONSENT, Consent

AT_ONCE = 8


@dataclass
class Scene:
    """What the commands go for, and whether they got it."""

    target: Target
    listeners: tuple[socket.socket, ...]
    victim: subprocess.Popen[bytes]

    def knocks(self) -> int:
        """Return how many packets arrived."""
        found = 0
        for listener in self.listeners:
            try:
                listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(1)
                found += 1
            except BlockingIOError:
                pass
        return found

    def survivors(self) -> list[str]:
        """Return the processes that commands left running, whatever they did to their environment."""
        return [line for line in command_lines() if self.target.nap in line and str(self.victim.pid) not in line]

    def unchanged(self, *, work: bool) -> str:
        places = [self.target.home, self.target.host_tmp, *([self.target.work] if work else [])]
        return " ".join(map(fingerprint, places))


def command_lines() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            yield f"{entry.name} {arguments}"


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with ExitStack() as stack:
        place = stack.enter_context(place_outside_tmp())
        work, home, host_tmp = place / "work", place / "home", tmp_path / "host"
        for directory in (work, home / ".ssh", host_tmp):
            directory.mkdir(parents=True)
        for path in (home / ".ssh/id_rsa", home / ".netrc"):
            path.write_text("PRIVATE\n")
        for path in (home / ".profile", work / "kept"):
            path.write_text("kept\n")
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
            subprocess.run(["git", *identity, *arguments], cwd=work, check=True)
        (work / "kept").write_text("kept and changed\n")
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("SERVICE_API_KEY", "PRIVATE")
        stream = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(stream.getsockname())
        for listener in (stream, datagrams):
            listener.setblocking(False)
        nap = f"300.{os.getpid()}"  # seconds, and a mark to find it by
        victim = stack.enter_context(subprocess.Popen(["sleep", nap]))
        stack.callback(victim.kill)
        target = Target(work, home, host_tmp, stream.getsockname()[1], victim.pid, nap)
        yield Scene(target, (stream, datagrams), victim)


async def run_all(shell: Any, scene: Scene) -> list[ToolResult]:
    places = asyncio.Semaphore(AT_ONCE)

    async def run(command: str) -> ToolResult:
        async with places:
            result: ToolResult = await shell.run(command)
            return result

    return await asyncio.gather(*(run(command) for _, command in hostile_commands(scene.target)))


async def mount(mount_shell: Any, scene: Scene, consent: Consent) -> Any:
    shell = await mount_shell(
        sandbox="required", safety_profile="unrestricted", working_dir=str(scene.target.work), timeout=20
    )
    shell.coordinator.register_capability(CONSENT, lambda tool_name, tool_input: consent)
    return shell


@needs_sandbox
async def test_what_nobody_was_asked_about_changes_reads_and_reaches_nothing(mount_shell: Any, scene: Scene) -> None:
    shell = await mount(mount_shell, scene, Consent.UNASKED)
    before = scene.unchanged(work=True)

    results = await run_all(shell, scene)

    assert len(results) >= 300
    assert scene.unchanged(work=True) == before
    assert scene.knocks() == 0
    assert scene.survivors() == []
    assert scene.victim.poll() is None
    assert [result for result in results if "PRIVATE" in str(result)] == []


@needs_sandbox
async def test_what_was_approved_changes_only_what_the_policy_allows(mount_shell: Any, scene: Scene) -> None:
    shell = await mount(mount_shell, scene, Consent.APPROVED)
    for listener in scene.listeners:  # it may be reached, and nobody there would answer
        listener.close()
    before, work = scene.unchanged(work=False), fingerprint(scene.target.work)

    results = await run_all(shell, scene)

    assert fingerprint(scene.target.work) != work
    assert scene.unchanged(work=False) == before
    assert scene.survivors() == []
    assert scene.victim.poll() is None
    assert [result for result in results if "PRIVATE" in str(result)] == []


def test_the_filter_alone_catches_some_of_them(scene: Scene) -> None:
    """Print what the safety profiles refuse; nothing is run, and nothing is promised."""
    commands = list(hostile_commands(scene.target))
    total = Counter(kind for kind, _ in commands)
    refused = {
        profile: Counter(kind for kind, command in commands if not SafetyValidator(profile).validate(command).allowed)
        for profile in SafetyProfile
    }
    lines = [f"{'refused by the filter':24}{'all':>8}" + "".join(f"{profile:>14}" for profile in SafetyProfile)]
    for kind in [*total, "sum"]:
        counts = [counter.total() if kind == "sum" else counter[kind] for counter in (total, *refused.values())]
        lines.append(f"{kind:24}{counts[0]:>8}" + "".join(f"{count:>14}" for count in counts[1:]))
    sys.stdout.write("\n".join(lines) + "\n")
