"""How a worker process comes to be: as a fork of a template, or as a program of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from amplifier_system.forking import ForkedChild
from amplifier_system.processes import ProcessTree, new_marker
from amplifier_system.tasks import start_task

from .environment import worker_environment

logger = logging.getLogger(__name__)

_ANSWER_S = 60.0
_ANSWER_BYTES = 4096


class WorkerStart:
    """Starts the workers of a daemon. On Linux they are forks of a template, which spares them every import.

    `further` are modules that this home's workers need beside what all of them do.

    A template that is gone is replaced for the next worker; the one that it was asked for is executed. Where a template
    cannot fork at all, and on other systems, every worker is executed.
    """

    def __init__(self, further: Sequence[str] = (), *, forks: bool = sys.platform == "linux") -> None:
        self._forks, self._further = forks, further
        self._template: asyncio.Task[Template] | None = None

    def prepare(self) -> None:
        """Have a template, or begin to."""
        if self._forks and self._template is None:
            self._template = start_task(Template.start(self._further))

    async def start(self, connection: int, output: int) -> ProcessTree:
        """Start a worker with one end of its connection, and with where its output goes; both stay the caller's.

        Raises `OSError`. Cancelled, it ends what it has started.
        """
        marker = new_marker("WORKER_")
        environment = worker_environment(os.environ)
        self.prepare()
        if (preparing := self._template) is not None:
            try:
                template = await asyncio.shield(preparing)
                return await template.fork(marker, environment, [connection, output])
            except OSError as error:
                logger.warning("a worker is started without the template: %s", error)
                await self._give_up(preparing)
        return await ProcessTree.start(
            _command("worker", connection, marker),
            environment=environment,
            stdout=output,
            stderr=output,
            descriptors=[connection],
            marker=marker,
        )

    async def _give_up(self, preparing: asyncio.Task[Template]) -> None:
        """Do without a template that failed, and without any if it never forked."""
        if self._template is not preparing:
            return
        self._template = None
        self._forks = preparing.exception() is None and preparing.result().has_forked
        await _end(preparing)

    async def close(self) -> None:
        """End the template."""
        preparing, self._template, self._forks = self._template, None, False
        if preparing is not None:
            await _end(preparing)


class Template:
    """The running template."""

    def __init__(self, tree: ProcessTree, channel: socket.socket) -> None:
        self.has_forked = False
        self._tree, self._channel = tree, channel
        self._asking = threading.Lock()

    @classmethod
    async def start(cls, further: Sequence[str]) -> Template:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_ANSWER_S)
        marker = new_marker("WORKER_")
        with theirs:
            try:
                tree = await ProcessTree.start(
                    _command("template", theirs.fileno(), marker, further),
                    environment=worker_environment(os.environ),
                    stdout=subprocess.DEVNULL,
                    stderr=2,
                    descriptors=[theirs.fileno()],
                    marker=marker,
                )
            except BaseException:
                ours.close()
                raise
        return cls(tree, ours)

    async def fork(self, marker: str, environment: dict[str, str], descriptors: list[int]) -> ProcessTree:
        """Have a worker forked.

        Raises `OSError`.
        """
        order = json.dumps({"marker": marker, "environment": {**environment, marker: "1"}}).encode()
        return await ProcessTree.begin(lambda: self._ask(order, descriptors), marker)

    def _ask(self, order: bytes, descriptors: list[int]) -> ForkedChild:
        with self._asking:
            socket.send_fds(self._channel, [order], descriptors)
            answer = self._channel.recv(_ANSWER_BYTES)
        if not answer.isdigit():
            raise OSError(answer.decode() or "it has ended")
        self.has_forked = True
        return ForkedChild(int(answer))

    async def end(self) -> None:
        with self._channel:
            await self._tree.kill()


async def _end(preparing: asyncio.Task[Template]) -> None:
    preparing.cancel()
    with suppress(asyncio.CancelledError, OSError):
        await (await preparing).end()


def _command(program: str, descriptor: int, marker: str, further: Sequence[str] = ()) -> list[str]:
    """Return a command line that ends with what an orphan is recognised by: see `orphans`."""
    own = [str(descriptor), str(os.getpid()), marker]
    return [sys.executable, "-m", f"amplifierd.workers.{program}", *further, *own]
