"""The configuration: what may be read and written, and how much of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amplifier_core.events import ARTIFACT_READ, ARTIFACT_WRITE
from amplifier_kit.config import LenientConfig
from amplifier_kit.tools.paths import EVERYTHING, NOTHING, read_path_list
from amplifier_kit.tools.workspace import FileSettings

EVENTS = (ARTIFACT_READ, ARTIFACT_WRITE)

MODULE_ID = "tool-filesystem"
MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Settings(FileSettings):
    """What may be read and written, and how much of it.

    For a key that protects something, an unusable value counts as the one that allows least.
    """

    require_approval: bool
    max_read_bytes: int
    max_write_bytes: int
    max_listing_entries: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "Settings":
        config = LenientConfig(MODULE_ID, given)
        shorthand = read_path_list(config, "allowed_paths", None, when_unusable=NOTHING)
        # An explicit null means everything, so the shorthand stands in only for a key that is not there.
        reads = None if isinstance(given, Mapping) and "allowed_read_paths" in given else shorthand
        settings = cls(
            working_dir=config.text("working_dir", None),
            allowed_read_paths=read_path_list(config, "allowed_read_paths", reads, when_unusable=NOTHING),
            denied_read_paths=_denied(config, "denied_read_paths"),
            allowed_write_paths=_granted(
                config, "allowed_write_paths", (".",) if shorthand is None else tuple(shorthand)
            ),
            denied_write_paths=_denied(config, "denied_write_paths"),
            allowed_write_files=_granted(config, "allowed_write_files", NOTHING),
            require_approval=config.boolean("require_approval", False, when_unusable=True),
            max_read_bytes=config.integer("max_read_bytes", 10 * MEBIBYTE, minimum=1),
            max_write_bytes=config.integer("max_write_bytes", 10 * MEBIBYTE, minimum=0),
            max_listing_entries=config.integer("max_listing_entries", 1000, minimum=1),
            read_before_write=config.choice(
                "read_before_write", "off", ("off", "warn", "enforce"), when_unusable="enforce"
            ),
        )
        config.warn_unknown()
        return settings


def _granted(config: LenientConfig, key: str, default: Sequence[str]) -> Sequence[str]:
    return read_path_list(config, key, default, when_unusable=NOTHING) or NOTHING


def _denied(config: LenientConfig, key: str) -> Sequence[str]:
    return read_path_list(config, key, NOTHING, when_unusable=EVERYTHING) or NOTHING
