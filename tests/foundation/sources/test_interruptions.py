"""Downloads that are cancelled, cut short by a full disk, or kept waiting by somebody else."""

import asyncio
import io
import os
import resource
import ssl
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import warm_python
from filelock import FileLock

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, Sources

_RESOLVE = """
import asyncio, sys
from pathlib import Path
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Sources
try:
    print(asyncio.run(Sources(Path(sys.argv[1])).resolve(sys.argv[2])).path.read_text())
except RefResolutionError as error:
    print(error.reason, error)
"""


@pytest.fixture
def gate(server: Any) -> Iterator[threading.Event]:
    gate = threading.Event()
    server.gates["/a.zip"] = gate
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", "a")
    server.answers["/a.zip"] = (200, {}, buffer.getvalue())
    yield gate
    gate.set()


@pytest.mark.parametrize("kind", ["", "zip+"])
async def test_a_cancelled_download_leaves_nothing_half_written(
    server: Any, gate: threading.Event, sources: Sources, kind: str
) -> None:
    resolving = asyncio.create_task(sources.resolve(f"{kind}{server.url}/a.zip"))
    async with asyncio.timeout(10):
        while not list(sources.cache_dir.glob("fsspec/*/.tmp-*")):  # noqa: ASYNC110 - a file, written by a thread
            await asyncio.sleep(0.01)

    resolving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resolving

    assert list((sources.cache_dir / "fsspec").iterdir()) == []
    gate.set()
    assert (await sources.resolve(f"{kind}{server.url}/a.zip")).path.exists()


async def test_a_download_that_stalls_ends_in_time(server: Any, gate: threading.Event, cache_dir: Path) -> None:
    with pytest.raises(RefResolutionError, match="no answer in time") as caught:
        await Sources(cache_dir, limits=Limits(connect_timeout_s=0.1)).resolve(f"{server.url}/a.zip")

    assert caught.value.reason == "timeout"
    assert list((cache_dir / "fsspec").iterdir()) == []


async def test_a_full_disk_is_reported_and_leaves_nothing(server: Any, sources: Sources) -> None:
    server.answers["/big"] = (200, {}, b"x" * 300_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(RefResolutionError, match="cannot be used") as caught:
            await sources.resolve(f"{server.url}/big")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.reason == "too-large"
    assert list((sources.cache_dir / "fsspec").iterdir()) == []


async def test_waiting_for_somebody_else_has_an_end(repository: Any, cache_dir: Path, limits: Limits) -> None:
    commit = repository.git("rev-parse", "HEAD")
    (cache_dir / "locks").mkdir(parents=True)

    with FileLock(cache_dir / "locks" / f"git-{commit}.lock"), pytest.raises(RefResolutionError) as caught:
        await Sources(cache_dir, limits=replace(limits, lock_timeout_s=0.05)).resolve(f"{repository.source}@{commit}")

    assert (caught.value.reason, "another process" in str(caught.value)) == ("timeout", True)


@pytest.mark.parametrize("file_name", ["git", "fsspec", "locks"])
async def test_a_cache_that_cannot_be_written_is_reported(
    repository: Any, server: Any, sources: Sources, file_name: str
) -> None:
    server.answers["/a"] = (200, {}, b"a")
    sources.cache_dir.mkdir()
    (sources.cache_dir / file_name).touch()
    source = f"{server.url}/a" if file_name == "fsspec" else f"{repository.source}@main"

    with pytest.raises(RefResolutionError, match="cannot be used"):
        await sources.resolve(source)


async def test_a_redirect_from_https_to_http_is_refused(server: Any, other_server: Any, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, [*command, *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.use_tls(context)
    server.answers["/down"] = (302, {"Location": f"{other_server.url}/secret"}, b"")
    server.answers["/fine"] = (200, {}, b"fine")
    environment = os.environ | {"SSL_CERT_FILE": str(certificate)}

    async def run(path: str) -> str:
        arguments = [sys.executable, "-c", _RESOLVE, str(tmp_path / "c"), f"https://127.0.0.1:{server.port}{path}"]
        done = await asyncio.to_thread(warm_python.run, arguments, env=environment, capture_output=True, text=True)
        return done.stdout.strip()

    assert await run("/fine") == "fine"
    assert "network Failed to download" in (refused := await run("/down"))
    assert "redirects from https to http" in refused
    assert other_server.seen == []
