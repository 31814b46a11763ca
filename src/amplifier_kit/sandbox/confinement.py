"""What a program may see and do."""

from dataclasses import dataclass, field
from pathlib import Path

from .limits import Limits


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a program may see and do; all paths are real ones, without symbolic links.

    Everything that is not mentioned can be read and not changed. `/tmp` is a private, empty one, as is every private
    place, except for what is writable or readable below it. What is hidden is absent even inside a writable place,
    and what is read-only stays so there.
    """

    working_dir: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    private: tuple[Path, ...] = ()
    has_network: bool = False
    limits: Limits = field(default_factory=Limits)
