"""How much a program may use, and how that is enforced: by a control group of its own, else by resource limits."""

import logging
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from amplifier_kit.config import LenientConfig

logger = logging.getLogger(__name__)

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_SHELL = "/bin/sh"
_REMOVAL_TRIES = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a program with everything it starts may use; None means no limit.

    Time is counted for every process by itself, and memory too where there is no control group. The resource limit on
    processes counts those of the user in the same sandbox, without a sandbox all of the user's; root is exempt from it.
    """

    memory_mb: int | None = None
    processes: int | None = None
    cpu_seconds: int | None = None

    @property
    def is_set(self) -> bool:
        return any(limit is not None for limit in (self.memory_mb, self.processes, self.cpu_seconds))

    def apply(self, arguments: Sequence[str | bytes], *, has_group: bool) -> list[str | bytes]:
        """Return the program with its resource limits set first; a control group takes over what it can count."""
        steps: list[str] = []
        if self.cpu_seconds is not None:
            steps.append(f"ulimit -t {self.cpu_seconds}")
        if self.memory_mb is not None and not has_group:
            steps.append(f"ulimit -v {self.memory_mb * 1024}")
        if self.processes is not None and not has_group:
            steps.append(f"{{ ulimit -u {self.processes} 2>/dev/null || ulimit -p {self.processes}; }}")
        if not steps:
            return list(arguments)
        return [_SHELL, "-c", " && ".join([*steps, 'exec "$@"']), "limits", *arguments]


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group for one program; it is gone when the program is."""

    directory: Path

    def join(self, arguments: Sequence[str | bytes]) -> list[str | bytes]:
        """Return the program so that it enters the group before it begins."""
        return [
            _SHELL,
            "-c",
            'echo $$ > "$1/cgroup.procs" && shift && exec "$@"',
            "group",
            str(self.directory),
            *arguments,
        ]

    def remove(self) -> None:
        """Remove the group; what should still be in it is killed."""
        with suppress(OSError):
            (self.directory / "cgroup.kill").write_text("1")
        for _ in range(_REMOVAL_TRIES):
            try:
                self.directory.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # the kernel has not let go of its processes yet
                os.sched_yield()
            else:
                return
        logger.warning("the control group %s could not be removed", self.directory)


def make_group(limits: Limits, root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> ControlGroup | None:
    """Return a control group with these limits; None where they need none or none can be made."""
    wanted = {"memory.max": limits.memory_mb and limits.memory_mb << 20, "pids.max": limits.processes}
    values = {name: value for name, value in wanted.items() if value is not None}
    parent = _find_parent(root, membership) if values else None
    if parent is None:
        return None
    group = ControlGroup(parent / f"amplifier-{uuid.uuid4().hex}")
    try:
        group.directory.mkdir()
        for name, value in values.items():
            (group.directory / name).write_text(str(value))
        with suppress(FileNotFoundError):  # a system without swap accounting
            if limits.memory_mb is not None:
                (group.directory / "memory.swap.max").write_text("0")
    except OSError as exc:
        logger.debug("no control group can be used: %s", exc)
        group.remove()
        return None
    return group


def _find_parent(root: Path, membership: Path) -> Path | None:
    """Return the group that ours is in, if groups beside ours can be made and limited there."""
    try:
        lines = membership.read_text(encoding="ascii").splitlines()
        own = next((root / line.removeprefix("0::/") for line in lines if line.startswith("0::")), None)
        if own is None or own == root:
            return None
        controllers = set((own.parent / "cgroup.subtree_control").read_text(encoding="ascii").split())
    except OSError:
        return None
    is_usable = {"memory", "pids"} <= controllers and os.access(own.parent, os.W_OK)
    return own.parent if is_usable and os.access(own.parent / "cgroup.procs", os.W_OK) else None


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


# The configuration keys of a module that runs programs.


Mode = Literal["auto", "required", "off"]

_MODES = ("auto", "required", "off")


def read_mode(given: LenientConfig, *, default: Mode) -> Mode:
    """Return the key `sandbox`; a value that cannot be understood must not open what it was meant to close.

    YAML reads a bare `off` as false and `on` as true.
    """
    value = given.raw("sandbox")
    if value is None:
        return default
    word = {False: "off", True: "required"}[value] if isinstance(value, bool) else str(value).strip().lower()
    return cast("Mode", word) if word in _MODES else given.refuse("sandbox", value, ", ".join(_MODES), "required")


def read_limits(given: LenientConfig) -> Limits:
    """Return the keys `memory_mb`, `processes` and `cpu_seconds`; one that cannot be read is narrow."""
    return Limits(
        memory_mb=given.integer("memory_mb", None, minimum=1, when_unusable=512),
        processes=given.integer("processes", None, minimum=1, when_unusable=64),
        cpu_seconds=given.integer("cpu_seconds", None, minimum=1, when_unusable=60),
    )
