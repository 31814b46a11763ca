"""A worker ends with its daemon, however that ended, and takes everything along that it started."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading
from typing import NoReturn

from amplifier_system.processes import end_with_tree

_PR_SET_PDEATHSIG = 1


class Guard:
    """Ends this process when its daemon is gone.

    There is no one left to tell anything, so nothing is waited for: a broken turn is repaired when the session is next
    opened, as after any crash. A thread watches, since a module may block the event loop.
    `marker` is the variable that this process and everything it starts have in their environment.
    """

    def __init__(self, connection: socket.socket, daemon_pid: int, marker: str) -> None:
        self._daemon_pid, self._marker = daemon_pid, marker
        self._watched = connection.dup()

    def begin(self) -> None:
        """Watch from now on."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        threading.Thread(target=self._watch, name="guard", daemon=True).start()
        self._end_if_alone()

    def end(self) -> NoReturn:
        """End this process and everything it started, at once."""
        end_with_tree(self._marker)

    def _signalled(self, number: int, frame: object) -> None:
        """Leave signals to the daemon while there is one: those of a terminal or of a service reach both."""
        self._end_if_alone()

    def _end_if_alone(self) -> None:
        if os.getppid() != self._daemon_pid:
            self.end()

    def _watch(self) -> None:
        gone = select.poll()
        gone.register(self._watched, 0)  # that the other side is gone is reported whether it is asked for or not
        gone.poll()
        self.end()
