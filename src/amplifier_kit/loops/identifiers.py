"""Identifiers that are needed by the dozen."""

import uuid
from collections.abc import Iterator

_COUNTED_DIGITS = 8


def uuid_series() -> Iterator[str]:
    """Yield UUIDs (version 4): one random start, its last digits counted up for each further one."""
    start = str(uuid.uuid4())
    prefix, first = start[:-_COUNTED_DIGITS], int(start[-_COUNTED_DIGITS:], 16)
    values = 16**_COUNTED_DIGITS
    for count in range(values):
        yield f"{prefix}{(first + count) % values:08x}"
