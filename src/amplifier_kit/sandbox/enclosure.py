"""How a program is started in a sandbox."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .confinement import Confinement


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What is started in the place of a program: with these arguments, this environment and these descriptors open.

    From `status`, where there is one, can be read what becomes of the program.
    """

    arguments: Sequence[str | bytes]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    status: int | None = None

    def close(self) -> None:
        """Close what only the started program needs."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Sandbox(Protocol):
    """A way to confine a program."""

    @property
    def name(self) -> str: ...

    def enclose(
        self, arguments: Sequence[str | bytes], confinement: Confinement, environment: Mapping[str, str]
    ) -> Enclosure:
        """Return what has to be started in the place of a program."""
        ...
