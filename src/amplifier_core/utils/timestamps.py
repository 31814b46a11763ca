"""The time as it stands in events and messages."""

import time
from datetime import UTC, datetime

_second: tuple[int, str] = (-1, "")


def utc_timestamp() -> str:
    """Return the current UTC time in ISO 8601 with microseconds and offset.

    Every event carries one, so the part that changes once a second is formatted once a second.
    """
    global _second
    second, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    known, text = _second
    if known != second:
        text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second = (second, text)
    return f"{text}.{nanoseconds // 1000:06d}+00:00"
