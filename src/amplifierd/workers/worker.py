"""A worker process: `python -m amplifierd.workers.worker FD DAEMON_PID MARKER`.

It has one end of a connection to the daemon as descriptor FD, and answers what is asked there until the daemon asks it
to stop, or is gone: `docs/worker-protocol.md`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys

from amplifier_system.garbage import keep_what_is_there, look_seldom

from .guard import Guard


def main(arguments: list[str]) -> None:
    descriptor, daemon_pid, marker = arguments
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    guard = Guard(connection, int(daemon_pid), marker)
    guard.begin()
    look_seldom()
    from .serving import serve  # everything that sessions need: much to import, once nothing looks for garbage in it

    keep_what_is_there()
    asyncio.run(serve(connection, guard))
    logging.shutdown()
    os._exit(0)  # threads of modules must not keep an ended worker alive


if __name__ == "__main__":
    main(sys.argv[1:])
