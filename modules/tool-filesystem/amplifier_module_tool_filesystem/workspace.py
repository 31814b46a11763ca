"""The files of one session: where paths lead, what may be touched, and what has been seen."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary

from amplifier_core.events import ARTIFACT_READ, ARTIFACT_WRITE
from amplifier_kit.concerns import Concern, place_concerns
from amplifier_kit.mounting import find_capability
from amplifier_kit.policy import PolicyError, session_policy
from amplifier_kit.tools.descriptors import LinkInTheWayError, opened_directory, real_path
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import PathRules, WorkingDir, resolve, resolve_roots

from .entry import Entry
from .path_validation import DENIED, OUTSIDE_READ, OUTSIDE_WRITE
from .settings import Settings

EVENTS = (ARTIFACT_READ, ARTIFACT_WRITE)

T = TypeVar("T")
Intent = Literal["read", "write", "edit"]

_ATTEMPTS = 5  # to reach a file while another process swaps the directories on the way


class Workspace:
    """What the tools of one session share."""

    def __init__(self, config: Mapping[str, Any] | None, coordinator: Any) -> None:
        self.settings = Settings.read(config)
        self.coordinator = coordinator
        self.seen = SeenFiles(self.settings.read_before_write)
        self.agreed: set[str] = set()  # the running places that a person agreed to
        self._working_dir = WorkingDir(self.settings.working_dir, coordinator)

    def locate(self, file_path: str) -> Path:
        """Return the absolute path that the model means; symbolic links are kept."""
        if not file_path.startswith("@"):
            return self._working_dir.join(file_path)
        resolver = find_capability(self.coordinator, "mention_resolver")
        if resolver is None:
            raise ToolFailure(
                f"{file_path} is a mention, and the session offers no mention_resolver", "capability_missing"
            )
        found = resolver.resolve(file_path)
        if found is None:
            raise ToolFailure(f"@mention not found: {file_path}", "not_found")
        return self._working_dir.join(found)

    def concerns_of(self, path: Path) -> tuple[Concern, ...]:
        """Return what a person is asked about before a path is written."""
        return place_concerns(path, self._working_dir.path())

    def visit(self, shown: Path, file_path: str, intent: Intent, work: Callable[[Entry], T]) -> T:
        """Check that a path may be touched, and do `work` on exactly what was checked.

        Who writes makes the directories that are missing; who writes or edits has the file for itself. Raises
        `ToolFailure`, and `OSError` when the directory of the file cannot be entered.
        """
        for _ in range(_ATTEMPTS):
            rules, real = self._rules(intent), resolve(shown)
            _require(rules, real, shown, file_path, intent)
            self._ask_policy(shown, intent)
            try:
                with (
                    nullcontext() if intent == "read" else _alone(real),
                    opened_directory(real.parent, create=intent == "write") as directory,
                ):
                    lies_in = real_path(directory)
                    if lies_in is not None:
                        _require(rules, lies_in / real.name, shown, file_path, intent)
                        self._ask_policy(lies_in / real.name, intent)
                        self._require_agreed(lies_in / real.name, intent)
                    return work(Entry(directory, real.name or ".", shown, real))
            except LinkInTheWayError:
                continue
        raise ToolFailure(
            f"Access denied: {file_path} leads through a symbolic link that cannot be followed safely", "access_denied"
        )

    def _ask_policy(self, path: Path, intent: Intent) -> None:
        policy = session_policy(self.coordinator, self._working_dir.path())
        try:
            policy.check_read(path)
            if intent != "read":
                policy.check_write(path)
        except PolicyError as exc:
            raise ToolFailure(f"Access denied: {exc}", "access_denied", rule=exc.rule) from None

    def _require_agreed(self, real: Path, intent: Intent) -> None:
        """Refuse a running place that a path has come to lead to since it was asked about."""
        for concern in self.concerns_of(real) if intent != "read" else ():
            if concern.subject not in self.agreed:
                raise ToolFailure(f"Access denied: {concern.words}, and nobody agreed to that", "access_denied")

    def _rules(self, intent: Intent) -> PathRules:
        base, settings = self._working_dir.path(), self.settings
        if intent == "read":
            allowed = settings.allowed_read_paths
            return PathRules(
                allowed=None if allowed is None else resolve_roots(allowed, base),
                denied=resolve_roots(settings.denied_read_paths, base),
            )
        return PathRules(
            allowed=resolve_roots(settings.allowed_write_paths, base),
            denied=resolve_roots(settings.denied_write_paths, base),
            files=resolve_roots(settings.allowed_write_files, base),
        )


class SeenFiles:
    """What the session knows of its files, so that nothing unread is overwritten where that matters."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._known: dict[Path, tuple[int, int]] = {}

    def remember(self, entry: Entry, found: os.stat_result) -> None:
        if self._policy != "off":
            self._known[entry.real] = _state(found)

    def find_objection(self, entry: Entry, found: os.stat_result | None) -> str | None:
        """Return what is to be said before a file is changed; raises `ToolFailure` where that is enforced."""
        if self._policy == "off" or found is None:
            return None
        known = self._known.get(entry.real)
        if known == _state(found):
            return None
        code, problem = ("not_read", "has not been read in this session")
        if known is not None:
            code, problem = ("stale_file", "has changed since it was read")
        objection = f"{entry.shown} {problem}"
        if self._policy == "enforce":
            raise ToolFailure(f"{objection}; read it first", code)
        return objection


def _state(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size


def _require(rules: PathRules, real: Path, shown: Path, file_path: str, intent: Intent) -> None:
    verdict = rules.verdict(real)
    if verdict == "denied":
        raise ToolFailure(DENIED.format(path=shown), "access_denied")
    if verdict == "outside":
        message = OUTSIDE_READ.format(path=file_path) if intent == "read" else OUTSIDE_WRITE.format(path=shown)
        raise ToolFailure(message, "access_denied")


class _Turnstile:
    """Lets one writer of a path pass at a time; gone when none waits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_turnstiles: WeakValueDictionary[Path, _Turnstile] = WeakValueDictionary()
_turnstiles_guard = threading.Lock()


@contextmanager
def _alone(real: Path) -> Iterator[None]:
    """Hold the process-wide lock of one path."""
    with _turnstiles_guard:
        turnstile = _turnstiles.get(real)
        if turnstile is None:
            turnstile = _turnstiles[real] = _Turnstile()
    with turnstile.lock:
        yield
