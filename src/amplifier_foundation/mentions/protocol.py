"""What turns a mention into a path."""

from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class MentionResolverProtocol(Protocol):
    """Finds the file or folder that a mention, `@` included, means.

    A resolver may also take the keyword `relative_to` (the folder of the text that mentions), and may have a method
    `failure_reason(mention) -> str` that says why it returned nothing.
    """

    def resolve(self, mention: str) -> Path | None: ...


class ReadPolicy(Protocol):
    """Says what a session may read; the capability `session.policy` is one."""

    def check_read(self, path: Path | str) -> Path:
        """Return where a path leads; raises `PermissionError` when it may not be read."""
