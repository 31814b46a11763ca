"""What a worker does from its first request to the end of its connection."""

from __future__ import annotations

import asyncio
import socket

from amplifier_system.supervisor import Supervisor, cancelled

from .guard import Guard
from .heartbeat import Heartbeat
from .json_rpc import Peer
from .outbox import Outbox
from .priority import leave_cores_to_daemon
from .worker_log import begin_log
from .worker_methods import WorkerMethods


async def serve(connection: socket.socket, guard: Guard) -> None:
    """Answer until the daemon asks to stop; without a daemon nothing more is done, not even the end of a turn."""
    begin_log()
    is_over = asyncio.Event()
    methods = WorkerMethods(at_stop=is_over.set)

    def lost() -> None:
        if not is_over.is_set():
            guard.end()

    peer = await Peer.connect(connection, methods.table(), at_end=lost)
    outbox = Outbox(peer)
    methods.begin(outbox)
    heartbeat = Heartbeat(outbox.put)
    start = Supervisor().start
    beside = [start("heartbeat", heartbeat.run), start("priority", leave_cores_to_daemon)]
    try:
        await is_over.wait()
    finally:
        await cancelled(*beside)
        peer.close()
