"""A confinement in the words of `sandbox-exec`, for macOS.

Later rules outrank earlier ones. That system has no private `/tmp` and no namespace of processes: where something is
writable temporary files are, too, else nothing is, and what a program starts is found by its process group.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .confinement import Confinement
from .enclosure import Enclosure

_TEMPORARY = tuple(map(Path, ("/private/tmp", "/private/var/tmp", "/private/var/folders")))
_DEVICES = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/random", "/dev/urandom", "/dev/stdout", "/dev/stderr")


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """The program `sandbox-exec`."""

    executable: str = "/usr/bin/sandbox-exec"
    name = "sandbox-exec"
    has_own_network = False

    def enclose(
        self, arguments: Sequence[str | bytes], confinement: Confinement, environment: Mapping[str, str]
    ) -> Enclosure:
        """Return what has to be started in the place of a program."""
        return Enclosure([self.executable, "-p", profile(confinement), *arguments], environment)


def profile(confinement: Confinement) -> str:
    """Return the rules for a program."""
    return "\n".join(_rules(confinement))


def _rules(confinement: Confinement) -> Iterator[str]:
    yield "(version 1)"
    yield "(allow default)"
    yield "(deny file-write*)"
    yield f"(allow file-write-data {' '.join(f'(literal {_quoted(path)})' for path in _DEVICES)})"
    if confinement.private:
        shown = (*confinement.readable, *confinement.writable, confinement.working_dir)
        yield f"(deny file-read* {_subpaths(confinement.private)})"
        yield f"(allow file-read* {_subpaths(shown)})"
    if confinement.writable:
        yield f"(allow file-write* {_subpaths((*_TEMPORARY, *confinement.writable))})"
    if kept := (*confinement.read_only, *confinement.kept_folders, *confinement.kept_files):
        yield f"(deny file-write* {_subpaths(kept)})"
    if confinement.hidden:
        yield f"(deny file-read* file-write* {_subpaths(confinement.hidden)})"
    if confinement.shown:
        yield f"(allow file-read* {_subpaths(confinement.shown)})"
    if not confinement.has_network:
        yield "(deny network*)"


def _subpaths(paths: Iterable[Path]) -> str:
    return " ".join(f"(subpath {_quoted(str(path))})" for path in paths)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
