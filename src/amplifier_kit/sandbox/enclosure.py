"""How a program is started in a sandbox."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from amplifier_system.processes import spawn

from .limits import Confinement

# A small process that watches ours, and kills a sandbox when ours is gone.
#
# bubblewrap binds its processes to the life of ours one after the other, and its first one inside waits for a word
# from outside before. A process that is killed meanwhile leaves the next one waiting forever. The watch is told the
# process group of the sandbox before there is any, and ends all of it.


_SHELL = "/bin/sh"
# Its input ends without a line when our process does; where the group is announced has to be another descriptor.
_WATCH = 'read -r group <&1 || exit; read -r _ || kill -KILL "-$group"'
_ANNOUNCE = 'echo $$ > /proc/self/fd/$1 && shift && exec "$@"'


class Watch:
    """The watch over one sandbox. What is started with `over` has to lead a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes], announcement: int) -> None:
        self._process = process
        self.announcement = announcement

    @classmethod
    def start(cls) -> Self:
        """Start to watch; raises `OSError`. `announcement` is for what is started, and to be closed here after that."""
        announced, announcement = os.pipe()
        try:
            process = spawn(
                [_SHELL, "-c", _WATCH], environment={}, cwd=Path("/"), stdin=subprocess.PIPE, stdout=announced
            )
        except OSError:
            os.close(announcement)
            raise
        finally:
            os.close(announced)
        return cls(process, announcement)

    def over(self, arguments: Sequence[str | bytes]) -> list[str | bytes]:
        """Return the sandbox so that it announces itself before it begins."""
        return [_SHELL, "-c", _ANNOUNCE, "watched", str(self.announcement), *arguments]

    def release(self) -> None:
        """Stop to watch: nothing is left of the sandbox."""
        self._process.communicate(b"\n")

    def kill(self) -> None:
        """Kill what is left of the sandbox, and stop to watch."""
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Reports:
    """This side of a sandbox. From the descriptor `status` can be read what becomes of the program.

    From `ready` a byte can be read when the program is about to begin, and it begins when a line is written to `go`.
    `watch` takes the sandbox down when this process is gone.
    """

    status: int
    ready: int
    go: int
    watch: Watch

    def close(self) -> None:
        """Close everything, and kill what is left of the sandbox."""
        self.watch.kill()
        for descriptor in (self.status, self.ready, self.go):
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What is started in the place of a program: with these arguments, this environment and these descriptors open."""

    arguments: Sequence[str | bytes]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    reports: Reports | None = None

    def close(self) -> None:
        """Close what only the started program needs."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Sandbox(Protocol):
    """A way to confine a program."""

    @property
    def name(self) -> str: ...

    @property
    def has_own_network(self) -> bool:
        """True where a program without a network has a loopback of its own."""
        ...

    def enclose(
        self, arguments: Sequence[str | bytes], confinement: Confinement, environment: Mapping[str, str]
    ) -> Enclosure:
        """Return what has to be started in the place of a program."""
        ...
