"""A running program, in a sandbox or without, and the end of everything it started."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

from amplifier_system.process_members import MEMBERS, Members
from amplifier_system.processes import ProcessTree
from amplifier_system.tasks import run_to_end

from .confinement import Confinement
from .enclosure import Enclosure, Sandbox
from .limits import ControlGroup, make_group
from .namespace import Namespace, NamespaceMembers


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
        """Whether its processes live in a namespace of their own, and end when it does."""
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
        """Whether the sandbox ended by itself without having run the program."""
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
