"""The configuration: what both tools understand, what each adds, and how the module's part fills in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.tools.paths import NOTHING, read_path_list

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
