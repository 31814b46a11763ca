"""The template of workers, on Linux: `python -m amplifierd.workers.template [MODULE…] FD DAEMON_PID MARKER`.

It imports once what every worker needs, and these modules, and forks a worker whenever the daemon asks for one at FD.
An order is one message: the worker's `marker` and `environment` as JSON and, as descriptors, its connection and where
its output goes. The answer is the worker's pid, or why there is none. The worker is a child of the daemon, like one
that was executed.

Nothing of a build is imported here. There are no threads and no event loop, since no fork would survive them.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass

from amplifier_system.forking import fork_for_parent, replace_shown
from amplifier_system.startup import begin_the_start, end_the_start

from .worker import run

_SHARED = (
    *("amplifierd.workers.serving", "amplifierd.sessions.home_sessions", "amplifierd.sessions.session_parts"),
    *("amplifierd.plans.home_plans", "amplifierd.store.file_store", "amplifierd.store.session_index"),
    *("amplifier_kit.loops.orchestrator", "amplifier_kit.contexts.compacting", "amplifier_kit.types"),
    *("amplifier_kit.providers.call", "amplifier_kit.providers.response", "amplifier_kit.providers.stream"),
    *("amplifier_kit.tools.runs", "amplifier_kit.tools.paths", "amplifier_kit.tools.paths"),
    *("amplifier_kit.tools.runs", "amplifier_kit.mounting", "amplifier_foundation.session.store"),
)
"""What sessions need whatever they run, also what is imported late elsewhere."""

_MOST_BYTES = 1 << 20
_DESCRIPTORS = 2


@dataclass(frozen=True)
class _Order:
    """A worker that the daemon wants. It closes `begun` when it is no longer a part of the template."""

    marker: str
    environment: dict[str, str]
    connection: int
    output: int
    begun: int

    @classmethod
    def read(cls, message: bytes, descriptors: list[int], begun: int) -> _Order:
        connection, output = descriptors
        return cls(**json.loads(message), connection=connection, output=output, begun=begun)


def main(arguments: list[str]) -> None:
    *further, descriptor, daemon_pid, marker = arguments
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the daemon; this process ends with it
    begin_the_start()
    for name in (*_SHARED, *further):
        importlib.import_module(name)
    end_the_start()
    if threading.active_count() > 1:
        sys.exit(f"imports have started threads: {threading.enumerate()}")
    order = _await_order(channel)
    channel.close()
    _begin(order, marker)
    run(order.connection, int(daemon_pid), order.marker)


def _await_order(channel: socket.socket) -> _Order:
    """Fork for each order, and return it in the process that was forked for it. The template itself never returns."""
    while True:
        message, descriptors, *_ = socket.recv_fds(channel, _MOST_BYTES, _DESCRIPTORS)
        if not message:
            os._exit(0)
        beginning, begun = os.pipe()
        try:
            pid = fork_for_parent()
        except OSError as error:
            answer = str(error)
        else:
            if pid == 0:
                os.close(beginning)
                return _Order.read(message, descriptors, begun)
            answer = str(pid)
        for descriptor in (*descriptors, begun):
            os.close(descriptor)
        os.read(beginning, 1)  # returns when the worker has begun: until then it would end with the template
        os.close(beginning)
        channel.send(answer.encode())


def _begin(order: _Order, shown: str) -> None:
    """Have what a program has that was executed for the order; `shown` is the marker that the template has."""
    os.setsid()
    replace_shown(shown, order.marker)
    os.close(order.begun)
    os.environ.clear()
    os.environ.update(order.environment)
    for standard in (1, 2):
        os.dup2(order.output, standard)
    os.close(order.output)


if __name__ == "__main__":
    main(sys.argv[1:])
