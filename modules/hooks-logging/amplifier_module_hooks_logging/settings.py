"""The configuration of hooks-logging."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Self

from amplifier_kit.config import ModuleConfig, make_do

MODULE_ID = "hooks-logging"

LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}

_TEMPLATE = "~/.amplifier/projects/{project}/sessions/{session_id}/events.jsonl"
_NOISE = ("llm:stream_*delta",)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged, and where."""

    priority: int
    template: str
    auto_discover: bool
    additional_events: list[str]
    excluded: re.Pattern[str]
    enabled_events: list[str] | None
    strip_raw: bool
    tool_output: bool
    level: str | None
    max_bytes: int
    backup_count: int
    to_console: bool

    @classmethod
    def read(cls, values: Mapping[str, Any] | None) -> Self:
        """Read a mount plan's configuration; a value that does not fit raises `ValueError`."""
        config = ModuleConfig(MODULE_ID, values)
        output_dir = config.text("output_dir", None)
        default_template = f"{output_dir}/{{session_id}}/events.jsonl" if output_dir else _TEMPLATE
        settings = cls(
            priority=config.integer("priority", 100),
            template=config.text("session_log_template", default_template),
            auto_discover=config.boolean("auto_discover", True),
            additional_events=config.strings("additional_events", []),
            excluded=_any_of(config.strings("exclude_events", _NOISE)),
            enabled_events=config.strings("enabled_events", None),
            strip_raw=config.boolean("strip_raw", False),
            tool_output=config.boolean("tool_output", True),
            level=_level(config),
            max_bytes=config.integer("max_bytes", 0, minimum=0),
            backup_count=config.integer("backup_count", 3, minimum=1),
            to_console=config.text("output", "file") in ("console", "both"),
        )
        mode = config.text("mode", "session-only")
        if mode != "session-only":
            make_do(f"{MODULE_ID}: mode {mode!r} does not exist", "; every session has a log of its own")
        config.accept("file")
        config.warn_unknown()
        return settings

    @property
    def writes_messages(self) -> bool:
        """True if a request's messages are written in full."""
        return self.level == "DEBUG"


def _level(config: ModuleConfig) -> str | None:
    level = config.text("level", None)
    if level is None or level.upper() in LEVELS:
        return level and level.upper()
    return config.refuse("level", level, "one of " + ", ".join(LEVELS), None)


def _any_of(globs: list[str] | tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches what one of the globs matches."""
    return re.compile("|".join(map(translate, globs)) if globs else r"(?!)")
