"""How a connection to a server ended."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a connection, or of the attempt to make one; texts are free of secrets."""

    reason: Literal["cleanup", "exited", "connection_lost"]
    was_ready: bool = False
    error_type: str = ""
    message: str = ""
    is_final: bool = False  # trying again would not help
    status: int | None = None  # of HTTP, when it says that access is refused
    exit_code: int | None = None
