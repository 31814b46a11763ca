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
from .heartbeat import Heartbeat
from .json_rpc import Peer
from .outbox import Outbox
from .worker_log import begin_log
from .worker_methods import WorkerMethods


async def serve(connection: socket.socket) -> None:
    """Answer until the connection is over."""
    is_over = asyncio.Event()
    methods = WorkerMethods(at_stop=is_over.set)
    peer = await Peer.connect(connection, methods.table(), at_end=is_over.set)
    outbox = Outbox(peer)
    methods.begin(outbox)
    heartbeat = Heartbeat(outbox.put)
    beating = asyncio.create_task(heartbeat.run())
    try:
        await is_over.wait()
    finally:
        beating.cancel()
        peer.close()


def main(arguments: list[str]) -> None:
    descriptor, daemon_pid, marker = arguments
    begin_log()
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    Guard(connection, int(daemon_pid), marker).begin()
    look_seldom()
    keep_what_is_there()
    asyncio.run(serve(connection))
    logging.shutdown()
    os._exit(0)  # threads of modules must not keep an ended worker alive


if __name__ == "__main__":
    main(sys.argv[1:])
