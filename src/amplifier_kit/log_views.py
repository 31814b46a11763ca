"""Data of events that a hook masked for logs: it carries a stamp, and is not meant for the conversation.

Any hook may stamp what it returns: `{**masked, STAMP: {"applied": True, …}}`. Loops then leave prompt, tool input and
results as they were; a log takes the data as it is, but for the keys that the stamp names as `skipped`.
"""

from collections.abc import Mapping

STAMP = "redaction"


def is_log_view(data: Mapping[str, object]) -> bool:
    """Say whether data of an event is a masked view."""
    return STAMP in data
