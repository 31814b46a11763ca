"""A client of a daemon: what it needs to speak to it, and how it waits for the next one."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifierd.client.daemon_client import DaemonClient, DaemonLostError
from amplifierd.paths import Paths
from amplifierd.server.run_file import RunningDaemon
from amplifierd.store.hold import Holder
from amplifierd.store.record import now


@pytest.fixture
def read_certificates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return in what ways certificates are read, once they are."""
    read: list[str] = []
    for name in ("load_default_certs", "load_verify_locations", "set_default_verify_paths"):
        kept = getattr(ssl.SSLContext, name)

        def noting(*given: Any, name: str = name, kept: Any = kept) -> None:
            read.append(name)
            kept(*given)

        monkeypatch.setattr(ssl.SSLContext, name, noting)
    return read


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[::1]:9"])
@pytest.mark.parametrize("uds", [None, "daemon.sock"])
async def test_no_certificates_are_read_for_a_daemon_without_tls(
    url: str, uds: str | None, read_certificates: list[str]
) -> None:
    async with DaemonClient(url, None, uds=uds):
        assert not read_certificates

    ssl.create_default_context()
    assert read_certificates


async def test_the_next_daemon_is_waited_for_once_however_many_requests_are_under_way(tmp_path: Path) -> None:
    ended = replace(Holder.of_this_process("daemon"), started=0.0)
    daemon = RunningDaemon(ended, "boot", "127.0.0.1", 9, "http://127.0.0.1:9", None, "1", now())
    told: list[str] = []
    async with DaemonClient.of(daemon, Paths.from_environment(tmp_path, {})) as client:
        client.patience_s, client.tell = 0.3, told.append
        failures = await asyncio.gather(*(client.get("/sessions") for _ in range(3)), return_exceptions=True)

    assert [type(failure) for failure in failures] == [DaemonLostError] * 3
    assert told == ["the daemon has ended; waiting for it"]
