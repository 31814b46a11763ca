"""A server that cannot be started."""


class StartError(Exception):
    """A server that cannot be started, now or ever."""
