"""A client of a daemon: what it needs to speak to it."""

import ssl
from typing import Any

import pytest

from amplifierd.client.daemon_client import DaemonClient


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
