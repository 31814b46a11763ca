"""A worker process: `python -m amplifierd.workers.worker FD DAEMON_PID MARKER`, or a fork of the template.

It has one end of a connection to the daemon as descriptor FD, and answers what is asked there until the daemon asks it
to stop, or is gone: `docs/worker-protocol.md`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from typing import NoReturn

from amplifier_system.startup import keep_what_is_there, look_seldom

from .guard import Guard


def main(arguments: list[str]) -> None:
    descriptor, daemon_pid, marker = arguments
    look_seldom()
    run(int(descriptor), int(daemon_pid), marker)


def run(descriptor: int, daemon_pid: int, marker: str) -> NoReturn:
    """Be a worker, and end this process when there is nothing more to do."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    guard = Guard(connection, daemon_pid, marker)
    guard.begin()
    from .serving import serve  # everything that sessions need: much to import, once nothing looks for garbage in it

    keep_what_is_there()
    asyncio.run(serve(connection, guard))
    logging.shutdown()
    os._exit(0)  # threads of modules must not keep an ended worker alive


if __name__ == "__main__":
    main(sys.argv[1:])
