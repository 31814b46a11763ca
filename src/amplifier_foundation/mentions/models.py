"""What mentions resolve to."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class ContextFile:
    """One content, and every path it was found under."""

    content: str
    content_hash: str
    paths: list[Path]


@dataclass
class MentionResult:
    """What became of one mention.

    `failure_reason` is `not_found`, `permission_error`, `not_regular_file`, `binary`, `too_large`, `limit_reached` or
    `unknown`, or what a resolver with a policy of its own says. Content that was loaded before under another name is
    not repeated: then there is a path, no content and no reason.
    """

    mention: str
    resolved_path: Path | None
    content: str | None
    error: str | None
    is_directory: bool = False
    failure_reason: str | None = None

    @property
    def found(self) -> bool:
        return self.resolved_path is not None and (self.content is not None or self.is_directory)
