"""The module mounted on coordinators of their own, the servers it starts, and what they leave running."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from mounted_servers import Mounted
from processes import Started, leaving_nothing
from sdk_servers import Nursery

MountServers = Callable[..., Awaitable[Mounted]]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where servers over HTTP come from."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as started:
        yield started


@pytest.fixture
async def mount_servers(started: Started) -> AsyncIterator[MountServers]:
    """Mount the module with these servers; after the test they are stopped."""
    everything: list[Mounted] = []

    async def mount_servers(servers: Any, **config: Any) -> Mounted:
        everything.append(await Mounted.make(servers, **{"restart_delay": 0.05, **config}))
        return everything[-1]

    yield mount_servers
    await asyncio.gather(*(mounted.cleanup() for mounted in everything))


@pytest.fixture
async def start_servers(mount_servers: MountServers) -> MountServers:
    """Mount the module with these servers and let a prompt start them."""

    async def start(servers: Any, **config: Any) -> Mounted:
        mounted = await mount_servers(servers, **config)
        await mounted.prompt()
        return mounted

    return start


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """What the module logged at a level."""

    def find(level: int = logging.ERROR) -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.levelno == level and record.name.startswith("amplifier_")
        ]

    return find
