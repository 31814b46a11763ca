"""The events of a session and of its tree."""
