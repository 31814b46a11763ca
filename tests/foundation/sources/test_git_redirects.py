"""Repositories that redirect: followed to where downloads are followed, and nowhere else."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from git_repository import Repository
from git_server import git_server

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Sources

ASKED = "/info/refs?service=git-upload-pack"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]"])
async def test_a_redirect_to_a_private_address_is_refused(
    server: Any, other_server: Any, sources: Sources, host: str
) -> None:
    server.answers[f"/x.git{ASKED}"] = (302, {"Location": f"http://{host}:{other_server.port}/x.git{ASKED}"}, b"")

    with pytest.raises(RefResolutionError, match=r"it redirects to .*, a private address"):
        await sources.resolve(f"git+{server.url}/x.git")

    assert other_server.seen == []


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("file:///etc/passwd", "it redirects to 'file'"),
        ("ext::sh -c true", "it redirects to 'ext'"),
        ("/somewhere/else", "which is no repository"),
    ],
)
async def test_a_redirect_to_what_is_no_repository_is_refused(
    server: Any, sources: Sources, location: str, problem: str
) -> None:
    server.answers[f"/x.git{ASKED}"] = (301, {"Location": location}, b"")

    with pytest.raises(RefResolutionError, match=problem):
        await sources.resolve(f"git+{server.url}/x.git")

    assert {path for path, _ in server.seen} == {f"/x.git{ASKED}"}


async def test_a_repository_that_moved_on_its_host_is_fetched_with_its_credentials(
    repository: Repository, sources: Sources
) -> None:
    with git_server(repository, "me", "password") as server:
        server.moved["/old/"] = "/older/"
        server.moved["/older/"] = f"http://{server.host}/origin/"
        resolved = await sources.resolve(f"git+http://me:password@{server.host}/old/.git@main#subdirectory=bundle.md")

    assert resolved.path.read_text() == "hello\n"


async def test_credentials_stay_with_the_port_that_they_are_for(
    server: Any, other_server: Any, sources: Sources
) -> None:
    server.answers[f"/x.git{ASKED}"] = (302, {"Location": f"{other_server.url}/x.git{ASKED}"}, b"")
    other_server.answers[f"/x.git{ASKED}"] = (401, {"WWW-Authenticate": 'Basic realm="x"'}, b"")

    with pytest.raises(RefResolutionError) as caught:
        await sources.resolve(f"git+{server.url.replace('//', '//me:password@')}/x.git")

    assert caught.value.reason == "auth"
    assert [headers.get("authorization") for _, headers in other_server.seen] == [None]


async def test_too_many_redirects_are_refused(server: Any, sources: Sources) -> None:
    server.answers[f"/x.git{ASKED}"] = (302, {"Location": f"/x.git{ASKED}"}, b"")

    with pytest.raises(RefResolutionError, match="more than 5 redirects"):
        await sources.resolve(f"git+{server.url}/x.git")


@pytest.fixture
def public(server: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of a host that a repository redirects to."""
    addresses: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "moved.example":
            return real(host, *rest, **more)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for address in addresses for found in real(address, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    server.answers[f"/x.git{ASKED}"] = (302, {"Location": f"http://moved.example/x.git{ASKED}"}, b"")
    return addresses


async def test_a_public_host_is_reached_at_the_addresses_that_were_looked_at(
    server: Any,
    other_server: Any,
    sources: Sources,
    public: list[str],
    git_calls: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy on loopback stands for the internet."""
    public += ["8.8.4.4", "8.8.8.8"]
    monkeypatch.setenv("http_proxy", other_server.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    with pytest.raises(RefResolutionError, match="not found"):
        await sources.resolve(f"git+{server.url}/x.git")

    assert {path for path, _ in other_server.seen} == {f"http://moved.example/x.git{ASKED}"}
    assert any("http.curloptResolve=moved.example:80:8.8.4.4,8.8.8.8" in call for call in git_calls())


async def test_a_host_that_cannot_be_looked_at_is_not_reached(
    server: Any, sources: Sources, public: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    with pytest.raises(RefResolutionError, match=r"redirects to moved.example, which is not known here"):
        await sources.resolve(f"git+{server.url}/x.git")
