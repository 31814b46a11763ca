"""The process that renders: a text in, its HTML out, until there is no more to read."""

from __future__ import annotations

import signal
import sys

from .markdown import render

SIZE_BYTES = 4
"""Each message is its size, then UTF-8."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the daemon, which ends this process
    reads, writes = sys.stdin.buffer, sys.stdout.buffer
    while head := reads.read(SIZE_BYTES):
        text = reads.read(int.from_bytes(head)).decode("utf-8", "replace")
        answer = render(text).encode("utf-8", "replace")
        writes.write(len(answer).to_bytes(SIZE_BYTES) + answer)
        writes.flush()


if __name__ == "__main__":
    main()
