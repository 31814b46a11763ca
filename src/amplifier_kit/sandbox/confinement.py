"""What a program may see and do."""

from dataclasses import dataclass, field
from pathlib import Path

from .limits import Limits


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a program may see and do; all paths are real ones, without symbolic links.

    Everything that is not mentioned can be read and not changed. `/tmp` is a private, empty one, as is every private
    place, except for what is writable or readable below it. What is hidden is absent even inside a writable place,
    except for what is shown below it, and what is read-only stays so there. What is `kept_folders` and `kept_files` is
    read-only in a writable place even if it does not exist: then it is made, empty.
    """

    working_dir: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    kept_folders: tuple[Path, ...] = ()
    kept_files: tuple[Path, ...] = ()
    private: tuple[Path, ...] = ()
    has_network: bool = False
    limits: Limits = field(default_factory=Limits)
