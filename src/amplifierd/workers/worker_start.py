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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MountPlan
from amplifier_system.forking import ForkedChild
from amplifier_system.homes import PREFIX
from amplifier_system.policy.environment_access import SECRET_VARIABLES
from amplifier_system.processes import ProcessTree, new_marker
from amplifier_system.tasks import start_task
from amplifierd.plans.injection import named_variables
from amplifierd.plans.runtime_values import key_variables
from amplifierd.sessions.runtime import Runtime

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


# The environment of a worker: what programs need, and of all secrets only those that its sessions' plans ask for.


_NEEDED = ("PIP_*", "UV_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID")
"""What fetching and installing go by, with the access to private places that the owner gave them."""


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every worker is started with. Those of the daemon itself stay with it."""
    return {name: value for name, value in environment.items() if not (_is_ours(name) or _is_secret(name))}


def secrets_for(
    plan: Mapping[str, Any], environment: Mapping[str, str], resolver: ModuleSourceResolver
) -> dict[str, str]:
    """Return the secret variables that the sessions of a plan need: those it names, and the keys of its modules."""
    agents = plan.get("agents")
    overlays = [agent for agent in agents.values() if isinstance(agent, Mapping)] if isinstance(agents, Mapping) else []
    entries = [entry for part in (plan, *overlays) for entry in MountPlan(part).entries()]
    wanted = {*named_variables(plan), *(name for entry in entries for name in key_variables(entry, resolver))}
    given = wanted & environment.keys()
    return {name: environment[name] for name in given if _is_secret(name) and not _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _is_secret(name: str) -> bool:
    upper = name.upper()
    return _fits(upper, SECRET_VARIABLES) and not _fits(upper, _NEEDED)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


DescribeHome = Callable[[], Awaitable[dict[str, Any]]]
"""Returns the parameters with which a worker opens its home."""

_SETTINGS = frozenset(
    {
        *("log_level", "working_dir", "default_profile", "offline"),
        *("startup", "compile", "builds", "cache", "cluster", "checkpoints", "sessions", "mentions", "security"),
    }
)
"""What a worker is told of the settings; how the daemon is reached is none of its business."""


async def describe_home(runtime: Runtime, shipped_collection: Path | None) -> dict[str, Any]:
    """Return the parameters of `open` for a worker whose sessions run on the same store, paths and settings as ours."""
    return {
        "paths": {name: str(path) for name, path in asdict(runtime.paths).items()},
        "settings": {
            **runtime.settings.model_dump(mode="json", include=set(_SETTINGS)),
            "store": runtime.store.address.secret_text,  # over a pipe that only the two of us have
        },
        "shipped_collection": str(shipped_collection) if shipped_collection else None,
        "member_id": await runtime.store.join(),
    }
