"""A running program, in a sandbox or without, and the end of everything it started."""

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from amplifier_system.process_table import MEMBERS, GroupMembers, Members, all_pids
from amplifier_system.processes import ProcessTree
from amplifier_system.tasks import run_to_end

from .enclosure import Enclosure, Reports, Sandbox
from .limits import Confinement, ControlGroup, make_group

# What bubblewrap reports about a program, and the processes in the namespace it made for it.


logger = logging.getLogger(__name__)

_PROC = Path("/proc")
_END_LIMIT_MS = 5_000
_SIGNALLED = 128


class Namespace:
    """The namespace of one program, as `--json-status-fd` describes it line by line.

    Its first process is bubblewrap's own and cannot be asked to stop; when that is killed the kernel kills all others,
    and it is gone only when they are.
    """

    def __init__(self, reports: Reports) -> None:
        self.exit_code: int | None = None
        self._first: int | None = None
        self._first_descriptor: int | None = None
        self._descriptor_use = threading.Lock()  # once closed, its number can stand for another sandbox
        self._link = ""
        self._watch = reports.watch
        self._reader = threading.Thread(target=self._read, args=(reports,), name="sandbox-status", daemon=True)
        self._reader.start()

    @property
    def returncode(self) -> int | None:
        """How the program ended, negative for a signal; None when it did not run or was taken down from outside."""
        code = self.exit_code
        if code is None or code <= _SIGNALLED:
            return code
        # A shell and bubblewrap report a signal alike, by a number that hardly any program returns on its own.
        number = code - _SIGNALLED
        return -number if number in signal.valid_signals() else code

    def find(self) -> list[int]:
        """Return the pids of the program and of what it started."""
        if not self._link:
            return []
        return [pid for pid in all_pids() if pid != self._first and _link_of(pid) == self._link]

    def kill(self) -> None:
        """Kill everything in the namespace, at once."""
        with self._descriptor_use, contextlib.suppress(ProcessLookupError):
            if self._first_descriptor is not None:
                signal.pidfd_send_signal(self._first_descriptor, signal.SIGKILL)

    def wait_for_end(self) -> None:
        """Wait until nothing is left in the namespace."""
        self._reader.join()
        if self.exit_code is None:  # bubblewrap was taken down, and maybe nothing but that
            self._watch.kill()
        else:
            self._watch.release()
        if self._first_descriptor is not None:
            self._wait_for_first(self._first_descriptor)

    def _wait_for_first(self, descriptor: int) -> None:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        if not waiting.poll(_END_LIMIT_MS):
            logger.warning("the sandbox of process %s does not come to its end", self._first)
        with self._descriptor_use:
            os.close(descriptor)
            self._first_descriptor = None

    def _read(self, reports: Reports) -> None:
        with os.fdopen(reports.status, "rb") as lines:
            with os.fdopen(reports.ready, "rb", 0) as ready, os.fdopen(reports.go, "wb", 0) as go:
                line = lines.readline()
                self._take(line)
                if line and _is_first(ready, lines) and ready.read(1):
                    with contextlib.suppress(BrokenPipeError):
                        go.write(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            data: dict[str, int] = json.loads(line)
        except ValueError:
            return
        self.exit_code = data.get("exit-code", self.exit_code)
        if "child-pid" in data and "pid-namespace" in data:
            self._first, self._link = data["child-pid"], f"pid:[{data['pid-namespace']}]"
            with contextlib.suppress(OSError):  # it is over already
                descriptor = os.pidfd_open(self._first)
                if _link_of(self._first) in (self._link, ""):
                    self._first_descriptor = descriptor
                else:  # the number belongs to another process by now
                    os.close(descriptor)


class NamespaceMembers:
    """A program in a namespace, with bubblewrap around it: asked to stop is the program, killed is all of it."""

    def __init__(self, namespace: Namespace, pid: int, marker: str, is_reaped: Callable[[], bool]) -> None:
        self._namespace = namespace
        self._outside = GroupMembers(pid, marker, is_reaped)
        self._is_reaped = is_reaped

    def find(self) -> list[int]:
        return self._namespace.find()

    def signal(self, number: int) -> list[int]:
        if number == signal.SIGKILL:
            self._namespace.kill()
            left = self._outside.signal(number)
            return [] if self._is_reaped() else left  # the dead that are not reaped yet are in the group, too
        return [pid for pid in self.find() if _is_signalled(pid, number)]

    def signal_group(self, number: int) -> None:
        self.signal(number)


def _is_first(pipe: IO[bytes], other: IO[bytes]) -> bool:
    """Wait until something comes from one of two pipes, or nothing will, and say whether that is the first."""
    waiting = select.poll()
    for file in (pipe, other):
        waiting.register(file, select.POLLIN)
    return pipe.fileno() in dict(waiting.poll())


def _is_signalled(pid: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _link_of(pid: int) -> str:
    try:
        return str((_PROC / str(pid) / "ns/pid").readlink())
    except OSError:
        return ""


class Program:
    """A program and everything it starts. Made by `start`."""

    def __init__(self, tree: ProcessTree, namespace: Namespace | None) -> None:
        self._tree = tree
        self._namespace = namespace

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str | bytes],
        confinement: Confinement,
        *,
        sandbox: Sandbox | None,
        environment: Mapping[str, str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        descriptors: tuple[int, ...] = (),
    ) -> "Program":
        """Start a program in its working directory; without a sandbox only the limits of the confinement hold.

        The `descriptors` are open in it, and closed here, whether it starts or not.

        Raises `OSError`. Cancelled while the program starts, it ends the tree before it gives way.
        """
        prepared = await run_to_end(
            asyncio.to_thread(_Preparation.make, arguments, confinement, sandbox, environment, descriptors),
            undo=_Preparation.abandon,
        )
        try:
            tree = await ProcessTree.start(
                prepared.arguments,
                environment=prepared.enclosure.environment,
                cwd=confinement.working_dir,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                descriptors=prepared.enclosure.descriptors,
                members=prepared.members,
                at_start=prepared.enclosure.close,  # what ends with the program is not kept open here
                at_exit=prepared.finish,
            )
        except OSError:
            prepared.finish()
            raise
        return cls(tree, prepared.namespace)

    @property
    def pid(self) -> int:
        """The process that stands for the program; in a sandbox it is the sandbox's own."""
        return self._tree.pid

    @property
    def has_namespace(self) -> bool:
        """True if its processes live in a namespace of their own, and end when it does."""
        return self._namespace is not None

    @property
    def stdin(self) -> IO[bytes] | None:
        return self._tree.stdin

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._tree.stdout

    @property
    def stderr(self) -> IO[bytes] | None:
        return self._tree.stderr

    @property
    def returncode(self) -> int | None:
        """How the program ended, negative for a signal; None while it runs."""
        code = self._tree.returncode
        if self._namespace is None or code is None:
            return code
        return code if self._namespace.returncode is None else self._namespace.returncode

    @property
    def was_refused(self) -> bool:
        """True if the sandbox ended by itself without having run the program."""
        code = self._tree.returncode
        return self._namespace is not None and self._namespace.exit_code is None and code is not None and code > 0

    async def wait(self) -> int:
        """Wait until the program has exited, and return how; in a namespace what it started has ended then as well."""
        code = await self._tree.wait()
        return code if self.returncode is None else self.returncode

    async def find_pids(self) -> list[int]:
        """Return the pids of all living processes of the tree."""
        return await self._tree.find_pids()

    async def end(self, grace_s: float) -> None:
        """Ask the program and what it started to stop, and kill after `grace_s` seconds what is left."""
        await self._tree.end(grace_s)

    async def stop(self, grace_s: float) -> None:
        """End the program: with a grace where nothing can get away meanwhile, else at once."""
        await (self.end(grace_s) if self.has_namespace else self.kill())

    async def kill(self) -> None:
        """Kill the program and everything it started without asking."""
        await self._tree.kill()


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What is made for one program before it starts."""

    enclosure: Enclosure
    namespace: Namespace | None
    group: ControlGroup | None

    @classmethod
    def make(
        cls,
        arguments: Sequence[str | bytes],
        confinement: Confinement,
        sandbox: Sandbox | None,
        environment: Mapping[str, str],
        descriptors: tuple[int, ...],
    ) -> "_Preparation":
        try:
            return cls._made(arguments, confinement, sandbox, environment, descriptors)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    @classmethod
    def _made(
        cls,
        arguments: Sequence[str | bytes],
        confinement: Confinement,
        sandbox: Sandbox | None,
        environment: Mapping[str, str],
        descriptors: tuple[int, ...],
    ) -> "_Preparation":
        group = make_group(confinement.limits)
        arguments = confinement.limits.apply(arguments, has_group=group is not None)
        if sandbox is None:
            return cls(Enclosure(arguments, environment, descriptors), None, group)
        enclosure = sandbox.enclose(arguments, confinement, environment)
        enclosure = replace(enclosure, descriptors=(*enclosure.descriptors, *descriptors))
        namespace = None if enclosure.reports is None else Namespace(enclosure.reports)
        return cls(enclosure, namespace, group)

    @property
    def arguments(self) -> Sequence[str | bytes]:
        return self.enclosure.arguments if self.group is None else self.group.join(self.enclosure.arguments)

    def members(self, pid: int, marker: str, is_reaped: Callable[[], bool]) -> Members:
        if self.namespace is None:
            return MEMBERS(pid, marker, is_reaped)
        return NamespaceMembers(self.namespace, pid, marker, is_reaped)

    def finish(self) -> None:
        """Wait for the end of what the program started, where that ends with it, and remove what was made."""
        if self.namespace is not None:
            self.namespace.wait_for_end()
        if self.group is not None:
            self.group.remove()

    def abandon(self) -> None:
        """Remove what was made for a program that did not start."""
        self.enclosure.close()
        self.finish()
