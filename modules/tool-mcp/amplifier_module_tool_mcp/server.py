"""A server of the configuration, as the rest of the session sees it."""

from typing import Any, Literal

State = Literal["idle", "starting", "ready", "backoff", "failed", "stopped"]


class McpServer:
    """A server and how it is. By itself it is one whose entry is broken: it never starts."""

    def __init__(self, name: str, problem: str = "") -> None:
        self.name = name
        self.state: State = "failed"
        self.last_error: str | None = problem or None

    def status(self) -> dict[str, Any]:
        """Return the state of the server as JSON data."""
        return {
            "server": self.name,
            "transport": None,
            "state": self.state,
            "pid": None,
            "protocol_version": None,
            "server_info": None,
            "instructions": None,
            "tools": [],
            "restarts": 0,
            "last_error": self.last_error,
        }
