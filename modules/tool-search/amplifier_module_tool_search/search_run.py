"""One search: where it starts, how long it may take, and what is reported about it at the end."""

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from amplifier_kit.config import LenientConfig
from amplifier_kit.policy import DeniedBelow, PolicyError, SessionPolicy, session_policy
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import NOTHING, PathRules, WorkingDir, read_path_list, resolve, resolve_roots
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.runs import announce, in_worker

# The configuration: what both tools understand, what each adds, and how the module's part fills in.


MODULE_ID = "tool-search"

EXCLUSIONS = (
    *("node_modules", ".venv", "venv", ".git", "__pycache__", ".mypy_cache", ".pytest_cache", ".tox", "dist", "build"),
    *(".next", ".nuxt", "target", "vendor", ".gradle", ".idea", ".vscode", "coverage", ".nyc_output"),
)
DEFAULT_LIMITS = {"files_with_matches": 200, "content": 500, "count": 200}
MAX_FILE_SIZE = 10 << 20

_SHARED_KEYS = ("working_dir", "allowed_paths", "exclusions", "timeout", "respect_gitignore")
_TOOL_KEYS = {
    "grep": (*_SHARED_KEYS, "max_file_size", "default_limits", "max_line_chars", "max_result_bytes"),
    "glob": (*_SHARED_KEYS, "max_results"),
}


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What both tools go by."""

    working_dir: str | None
    allowed_paths: Sequence[str] | None
    exclusions: frozenset[str]
    timeout_s: float
    respect_gitignore: bool

    @classmethod
    def read(cls, config: LenientConfig, *, respect_gitignore: bool) -> "SearchSettings":
        return cls(
            working_dir=config.text("working_dir", None),
            allowed_paths=read_path_list(config, "allowed_paths", None, when_unusable=NOTHING),
            exclusions=frozenset(config.strings("exclusions", EXCLUSIONS)),
            timeout_s=config.number("timeout", 60.0, above=0),
            respect_gitignore=config.boolean("respect_gitignore", respect_gitignore),
        )


@dataclass(frozen=True, slots=True)
class GrepSettings:
    """The settings of `grep`; 0 stands for no limit."""

    common: SearchSettings
    max_file_size: int
    default_limits: Mapping[str, int]
    max_line_chars: int
    max_result_bytes: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "GrepSettings":
        config = LenientConfig(f"{MODULE_ID}: grep", given)
        limits = LenientConfig(f"{MODULE_ID}: grep.default_limits", config.mapping("default_limits", {}))
        settings = cls(
            common=SearchSettings.read(config, respect_gitignore=True),
            max_file_size=config.integer("max_file_size", MAX_FILE_SIZE, minimum=0),
            default_limits={mode: limits.integer(mode, limit, minimum=0) for mode, limit in DEFAULT_LIMITS.items()},
            max_line_chars=config.integer("max_line_chars", 2000, minimum=0),
            max_result_bytes=config.integer("max_result_bytes", 100_000, minimum=0),
        )
        limits.warn_unknown()
        config.warn_unknown()
        return settings


@dataclass(frozen=True, slots=True)
class GlobSettings:
    """The settings of `glob`; 0 results stands for no limit."""

    common: SearchSettings
    max_results: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "GlobSettings":
        config = LenientConfig(f"{MODULE_ID}: glob", given)
        settings = cls(
            common=SearchSettings.read(config, respect_gitignore=False),
            max_results=config.integer("max_results", 500, minimum=0),
        )
        config.warn_unknown()
        return settings


def tool_configs(given: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the configuration of each tool: its own part, and the module's keys where that says nothing."""
    config = LenientConfig(MODULE_ID, given)
    shared = {key: config.raw(key) for keys in _TOOL_KEYS.values() for key in keys}
    parts = {"grep": config.mapping("grep", {}), "glob": config.mapping("glob", {})}
    config.warn_unknown()
    return {
        tool: {key: shared[key] for key in _TOOL_KEYS[tool] if shared[key] is not None} | part
        for tool, part in parts.items()
    }


FINISHED = "tool-search:finished"

T = TypeVar("T")

_SHOWN_CHARS = 200


class SearchStopped(Exception):
    """The caller has gone."""


class SearchTimedOut(ToolFailure):
    """The time for a search is over."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"Search timed out after {timeout_s:g} seconds; narrow the path or the pattern", "timeout")


class Watch:
    """Ends a search whose time is over or whose caller has gone."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._stop: threading.Event | None = None

    @property
    def remaining_s(self) -> float:
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise when the search is to end."""
        if self._stop is not None and self._stop.is_set():
            raise SearchStopped
        if self.remaining_s <= 0:
            raise self.timed_out()

    def timed_out(self) -> "SearchTimedOut":
        return SearchTimedOut(self._timeout_s)

    async def work(self, work: Callable[[], T]) -> T:
        """Run a part of the search in a worker thread."""

        def watched(stop: threading.Event) -> T:
            self._stop = stop
            self.check()
            return work()

        return await in_worker(watched)


@dataclass(frozen=True, slots=True)
class Root:
    """Where a search starts: `path` as it is reported, `real` where that leads."""

    path: Path
    real: Path
    is_file: bool
    rules: PathRules
    policy: SessionPolicy

    def may_read(self, path: Path) -> bool:
        """True if a file may be read, by where its path leads."""
        if self.rules.verdict(path) != "allowed":
            return False
        try:
            self.policy.check_read(path)
        except PolicyError:
            return False
        return True

    def denied(self) -> DeniedBelow | None:
        """Return what the policy denies below; None where a policy of another kind has to be asked about each entry."""
        return self.policy.read.denied_below(self.real) if isinstance(self.policy, SessionPolicy) else None

    def denies(self) -> Callable[[str], bool]:
        """Return a function that says whether the policy denies an entry below, other than a symbolic link."""
        denied = self.denied()
        return (lambda relative: not self.may_read(self.real / relative)) if denied is None else denied.covers

    def report(self, relative: str) -> str:
        """Return an entry below the root as it is reported."""
        return as_text(self.path / relative)


def find_root(working_dir: WorkingDir, settings: SearchSettings, given: str | None) -> Root:
    """Return where a search starts; raises `ToolFailure` when it may not, or there is nothing."""
    base = working_dir.path()
    path = base if given is None else working_dir.join(given)
    rules = search_rules(working_dir, settings)
    real = resolve(path)
    if rules.verdict(real) != "allowed":
        raise ToolFailure("Access denied: the path is outside the paths that may be searched", "access_denied")
    policy = session_policy(working_dir.coordinator, base)
    try:
        policy.check_read(path)
    except PolicyError as exc:
        raise ToolFailure(f"Access denied: {exc}", "access_denied", rule=exc.rule) from None
    try:
        mode = real.stat().st_mode
    except OSError:
        raise ToolFailure(f"Path not found: {path if given is None else given}", "not_found") from None
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise ToolFailure(f"Not a regular file or directory: {given}", "not_regular_file")
    return Root(path, real, stat.S_ISREG(mode), rules, policy)


def search_rules(working_dir: WorkingDir, settings: SearchSettings) -> PathRules:
    """Return what may be searched."""
    allowed = settings.allowed_paths
    return PathRules(None if allowed is None else resolve_roots(allowed, working_dir.path()))


@dataclass(slots=True)
class Announcement:
    """What is announced about a search once it is over."""

    coordinator: Any
    tool: str
    pattern: str
    root: str
    engine: str | None = None
    total: int = 0
    returned: int = 0
    success: bool = False
    timed_out: bool = False
    _started: float = field(default_factory=time.monotonic)

    async def emit(self) -> None:
        await announce(
            self.coordinator,
            FINISHED,
            {
                "tool": self.tool,
                "pattern": self.pattern[:_SHOWN_CHARS],
                "root": self.root,
                "engine": self.engine,
                "total": self.total,
                "returned": self.returned,
                "duration_ms": int((time.monotonic() - self._started) * 1000),
                "success": self.success,
                "timed_out": self.timed_out,
            },
        )


def path_key(relative: str) -> tuple[bytes, ...]:
    """Return what paths are ordered by: component by component, byte by byte."""
    return tuple(os.fsencode(part) for part in relative.split("/"))
