"""Where `amplifierd` starts; `python -m amplifierd` without a command serves."""

import sys
from collections.abc import Sequence

from amplifier_system.distributions import can_start
from amplifier_system.startup import begin_the_start, starting


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command of this process, or the one that `arguments` name, and return its exit code."""
    if not can_start():
        return 1
    begin_the_start()
    with starting():
        from amplifierd.control.main import main  # much to import, once nothing looks for garbage in it
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:] or ["serve"]))
