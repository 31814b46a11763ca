"""How a program is started in a sandbox."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .confinement import Confinement
from .watch import Watch


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
