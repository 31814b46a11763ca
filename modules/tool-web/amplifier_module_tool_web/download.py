"""Files that a fetch saves: within the paths that may be written, whole or not at all."""

import os
import stat
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_kit.concerns import Concern, place_concerns, refusal_of
from amplifier_kit.files import Replacement
from amplifier_kit.mounting import find_capability
from amplifier_kit.policy import PolicyError, SessionPolicy, session_policy
from amplifier_kit.tools.input import ToolFailure, os_failure
from amplifier_kit.tools.paths import (
    LinkInTheWayError,
    PathRules,
    WorkingDir,
    opened_directory,
    real_path,
    resolve,
    resolve_roots,
    stat_in,
)
from amplifier_kit.tools.paths import shown as as_text

from .settings import Settings

_ATTEMPTS = 5  # to reach a file while another process swaps the directories on the way
_PRIVATE = 0o600
_NEW = 0o666  # the system takes the umask off


@dataclass(frozen=True, slots=True)
class Destination:
    """A path that may be written, as the model gave it and as it is shown; `agreed` are the places a person allowed."""

    given: str
    shown: Path
    rules: PathRules
    policy: SessionPolicy
    working_dir: Path
    agreed: set[str] = field(default_factory=set)

    async def agree(self, coordinator: Any, tool_name: str) -> None:
        """Make sure that a person agreed to the running place that is about to be written; raises `ToolFailure`."""
        for concern in place_concerns(self.shown, self.working_dir):
            if refusal := await refusal_of(coordinator, concern, tool_name):
                raise ToolFailure(f"Access denied: {refusal}", "access_denied", rule="running_places")
            self.agreed.add(concern.subject)

    def require_agreed(self, real: Path) -> None:
        """Refuse a running place that the path has come to lead to since it was asked about."""
        for concern in place_concerns(real, self.working_dir):
            if concern.subject not in self.agreed:
                raise ToolFailure(f"Access denied: {concern.words}, and nobody agreed to that", "access_denied")

    def real(self) -> Path:
        """Return where the path leads now; raises `ToolFailure` when that may not be written."""
        real = resolve(self.shown)
        self.require(real)
        return real

    def require(self, real: Path) -> None:
        if self.rules.verdict(real) != "allowed":
            message = f"Access denied: {as_text(self.shown)} is not within allowed write paths"
            raise ToolFailure(message, "access_denied")
        try:
            self.policy.check_write(real)
        except PolicyError as exc:
            raise ToolFailure(f"Access denied: {exc}", "access_denied", rule=exc.rule) from None

    def require_file(self, found: os.stat_result | None) -> None:
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise ToolFailure(f"Cannot write to directory: {self.given}", "is_directory")
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise ToolFailure(f"Not a regular file: {self.given}", "not_regular_file")


def find_destination(given: str, settings: Settings, coordinator: Any) -> Destination:
    """Return where a file is to be saved; raises `ToolFailure` when it cannot be saved there. Touches nothing."""
    working_dir = WorkingDir(settings.working_dir, coordinator)
    base = working_dir.path()
    entries = settings.allowed_write_paths
    roots = resolve_roots((".", tempfile.gettempdir()) if entries is None else entries, base)
    policy = session_policy(coordinator, base)
    destination = Destination(given, _located(given, working_dir, coordinator), PathRules(roots), policy, base)
    real = destination.real()
    with suppress(OSError):
        destination.require_file(real.lstat())
    return destination


def concerns_of_saving(given: str, settings: Settings, coordinator: Any) -> tuple[Concern, ...]:
    """Return the running place that a file would be saved in; none where it cannot be saved, which the call says."""
    working_dir = WorkingDir(settings.working_dir, coordinator)
    try:
        return place_concerns(_located(given, working_dir, coordinator), working_dir.path())
    except (ToolFailure, ValueError):
        return ()


def _located(given: str, working_dir: WorkingDir, coordinator: Any) -> Path:
    if not given.startswith("@"):
        return working_dir.join(given)
    resolver = find_capability(coordinator, "mention_resolver")
    if resolver is None:
        raise ToolFailure(f"{given} is a mention, and the session offers no mention_resolver", "capability_missing")
    found = resolver.resolve(given)
    if found is None:
        raise ToolFailure(f"@mention not found: {given}", "not_found")
    return working_dir.join(found)


class Download:
    """A file in the making beside its destination. Blocking; raises `ToolFailure`. `discard` comes last, always."""

    def __init__(self, destination: Destination) -> None:
        self.size = 0
        self._destination = destination
        self._missing: list[Path] = []
        self._held = ExitStack()
        self._name = ""
        self._new: Replacement | None = None

    def write(self, data: bytes) -> None:
        """Add to the file, which is made first, with the directories that are missing."""
        try:
            if self._new is None:
                self._new = self._open()
            self._new.file.write(data)
        except OSError as exc:
            raise self._failed(exc) from exc
        self.size += len(data)

    def finish(self) -> None:
        """Give the file its name."""
        self.write(b"")
        assert self._new is not None
        try:
            self._new.sync()
            self._new.take_place(self._name)
        except OSError as exc:
            raise self._failed(exc) from exc
        self._missing.clear()

    def discard(self) -> None:
        """Remove what was not finished, and the directories that were made for it."""
        self._held.close()
        for directory in sorted(self._missing, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError):
                directory.rmdir()

    def _open(self) -> Replacement:
        for _ in range(_ATTEMPTS):
            try:
                return self._open_beside(self._destination.real())
            except LinkInTheWayError:
                self._held.close()
        message = (
            f"Access denied: {self._destination.given} leads through a symbolic link that cannot be followed safely"
        )
        raise ToolFailure(message, "access_denied")

    def _open_beside(self, real: Path) -> Replacement:
        self._missing += [parent for parent in real.parents if not parent.exists()]
        directory = self._held.enter_context(opened_directory(real.parent, create=True))
        lies_in = real_path(directory)
        if lies_in is not None:
            self._destination.require(lies_in / real.name)
        self._destination.require_agreed((lies_in or real.parent) / real.name)
        old = stat_in(directory, real.name)
        self._destination.require_file(old)
        self._name = real.name
        new = self._held.enter_context(Replacement(directory, mode=_PRIVATE if old else _NEW))
        if old is not None:
            os.fchmod(new.file.fileno(), stat.S_IMODE(old.st_mode))
        return new

    def _failed(self, error: OSError) -> ToolFailure:
        return os_failure(
            f"OS error writing file: {error.strerror or error} ({as_text(self._destination.shown)})", error
        )
