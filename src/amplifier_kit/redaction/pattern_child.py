"""The program of a `PatternProcess`: searches texts, and gives up those that keep the processor busy for too long.

It is run by its path and imports nothing of ours, so that it starts quickly.
"""

import json
import re
import signal
import sys
from types import FrameType

_BUSY_S = 0.1


def main() -> None:
    """Read a pattern's number and a text from each line, and print where it matches, null if that takes too long."""
    signal.signal(signal.SIGPROF, _give_up)
    patterns = [re.compile(pattern) for pattern in json.loads(sys.argv[1])]
    for line in sys.stdin:
        number, text = json.loads(line)
        sys.stdout.write(json.dumps(_spans(patterns[number], text)) + "\n")
        sys.stdout.flush()


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]] | None:
    signal.setitimer(signal.ITIMER_PROF, _BUSY_S)
    try:
        return [match.span() for match in pattern.finditer(text) if match[0]]
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


if __name__ == "__main__":
    main()
