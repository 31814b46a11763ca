"""What a worker does from its first request to the end of its connection."""

from __future__ import annotations

import asyncio
import socket

from .heartbeat import Heartbeat
from .json_rpc import Peer
from .outbox import Outbox
from .worker_log import begin_log
from .worker_methods import WorkerMethods


async def serve(connection: socket.socket) -> None:
    """Answer until the connection is over."""
    begin_log()
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
        methods.turn_away()
        beating.cancel()
        peer.close()
