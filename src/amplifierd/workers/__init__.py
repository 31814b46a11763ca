"""Worker processes: each runs the sessions of one build and speaks JSON-RPC with the daemon."""
