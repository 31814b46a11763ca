"""The cache of files that have not changed: one that could have changed unseen is read again."""

import pytest

from amplifierd.checkpoints.stat_cache import is_settled

SECOND = 1_000_000_000
FINE = 1_700_000_000 * SECOND + 123_456_789
COARSE = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("changed_ns", "read_after_ns", "settled"),
    [
        (FINE, 0, False),
        (FINE, 10_000_000, False),
        (FINE, 100_000_000, True),
        (FINE, -SECOND, False),
        (COARSE, 100_000_000, False),
        (COARSE, SECOND, False),
        (COARSE, 3 * SECOND, True),
    ],
    ids=[
        "read in the moment of its change",
        "read within a tick of the clock",
        "read well after it",
        "the clock was set back",
        "whole seconds: a change later in that second is not seen",
        "whole seconds: some file systems know every second one only",
        "whole seconds: read well after it",
    ],
)
def test_a_file_is_settled_when_a_later_change_would_show(changed_ns: int, read_after_ns: int, settled: bool) -> None:
    found = (0o100644, 5, changed_ns, changed_ns, 77)

    assert is_settled(found, changed_ns + read_after_ns) is settled


def test_a_change_of_the_inode_alone_counts_too() -> None:
    found = (0o100644, 5, FINE - 50 * SECOND, FINE, 77)

    assert not is_settled(found, FINE + 1)
