"""What consecutive requests have in common: most of their messages are the very same objects."""

from collections.abc import Sequence
from operator import is_


def shared_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many objects at the beginning of two lists are the very same."""
    same = list(map(is_, one, other))
    return len(same) if all(same) else same.index(False)
