"""The events of the module."""

SERVER_STARTED = "tool-mcp:server_started"
SERVER_FAILED = "tool-mcp:server_failed"
SERVER_STOPPED = "tool-mcp:server_stopped"
TOOLS_CHANGED = "tool-mcp:tools_changed"
PROGRESS = "tool-mcp:progress"

ALL = (SERVER_STARTED, SERVER_FAILED, SERVER_STOPPED, TOOLS_CHANGED, PROGRESS)
