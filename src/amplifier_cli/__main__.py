"""Where `amplifier` and `python -m amplifier_cli` start."""

import sys

from amplifier_system.distributions import can_start
from amplifier_system.startup import starting


def run() -> int:
    """Run the command of this process and return its exit code."""
    if not can_start():
        return 1
    with starting():
        from .main import main  # Ctrl-C while it is imported needs no traceback
    return main()


if __name__ == "__main__":
    sys.exit(run())
