"""Credentials in references: they work, and are neither stored nor shown."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from git_repository import Repository
from git_server import files_with, git_server

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, ProgressEvent, Sources, parse_reference

SECRET = "s3cr3t"
PASSWORD = f"{SECRET}/w@rd#?"


class Witness:
    """Sources with a cache of their own, and everything they say."""

    def __init__(self, cache_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.events: list[ProgressEvent] = []
        self.cache_dir, self.caplog = cache_dir, caplog
        caplog.set_level(logging.DEBUG)
        self.sources = Sources(cache_dir, progress=self.events.append, limits=Limits(retry_delays_s=()))

    def said(self) -> str:
        return f"{self.events}{self.caplog.text}"


@pytest.fixture
def witness(cache_dir: Path, caplog: pytest.LogCaptureFixture) -> Witness:
    return Witness(cache_dir, caplog)


@pytest.mark.parametrize(
    ("user", "password", "written"),
    [
        ("me", PASSWORD, f"me:{quote(PASSWORD, safe='')}@"),
        ("me", f"{SECRET}@x", f"me:{SECRET}@x@"),
        (f"token-{SECRET}", "", f"token-{SECRET}@"),
    ],
)
async def test_git_gets_credentials_and_nothing_else_does(
    repository: Repository,
    witness: Witness,
    git_calls: Callable[[], list[str]],
    user: str,
    password: str,
    written: str,
) -> None:
    with git_server(repository, user, password) as server:
        source = f"git+http://{written}{server.host}/origin/.git@main#subdirectory=bundle.md"
        resolved = await witness.sources.resolve(source)
        again = await witness.sources.resolve(source, refresh=True)
        status = await witness.sources.get_status(source)

    assert resolved.path.read_text() == "hello\n"
    assert resolved.url == f"http://{server.host}/origin"
    assert (again.commit, status.has_update, status.error) == (resolved.commit, False, None)
    assert files_with(witness.cache_dir, SECRET) == []
    assert not [line for line in git_calls() if SECRET in line]
    assert SECRET not in f"{witness.said()}{status}"


async def test_a_token_in_the_query_is_given_to_git_and_hidden(
    repository: Repository, witness: Witness, git_calls: Callable[[], list[str]]
) -> None:
    with git_server(repository, "", "", token=SECRET) as server:
        resolved = await witness.sources.resolve(f"git+http://{server.host}/origin/.git?access_token={SECRET}@main")

    assert (resolved.path / "bundle.md").read_text() == "hello\n"
    assert files_with(witness.cache_dir, SECRET) == []
    assert not [line for line in git_calls() if SECRET in line]
    assert SECRET not in f"{witness.said()}{resolved.url}"


async def test_credentials_that_are_refused_are_not_shown(repository: Repository, witness: Witness) -> None:
    with git_server(repository, "me", "other") as server:
        for written in (f"me:{SECRET}@", f"{SECRET}@"):
            with pytest.raises(RefResolutionError) as caught:
                await witness.sources.resolve(f"git+http://{written}{server.host}/origin/.git@main")
            assert caught.value.reason == "auth"
            assert SECRET not in f"{caught.value} {caught.value.ref} {caught.value.hint}"

    assert SECRET not in witness.said()


async def test_git_gives_credentials_to_their_own_host_only(repository: Repository, witness: Witness) -> None:
    with git_server(repository, "me", SECRET) as server, git_server(repository, "me", SECRET) as other:
        await witness.sources.resolve(f"git+http://me:{SECRET}@{server.host}/origin/.git@main")
        with pytest.raises(RefResolutionError) as caught:
            await witness.sources.resolve(f"git+http://{other.host}/origin/.git@main")

    assert caught.value.reason == "auth"


@pytest.mark.parametrize(
    "source",
    [
        f"git+https://me:{SECRET}/x@host.invalid/o/r@v1",
        f"git+https://me:{SECRET}@{SECRET}/x@host.invalid/o/r@v1",
        f"git+https://me:{SECRET}/x@h/o/r@-x",
        f"https://me:{SECRET}#{SECRET}@host.invalid/a",
        f"https://me:{SECRET}%0a@host.invalid/a",
        f"zip+https://me:{SECRET}?x@host.invalid/a.zip",
    ],
)
async def test_a_password_that_is_not_encoded_is_refused_and_not_shown(source: str, witness: Witness) -> None:
    with pytest.raises(RefResolutionError) as caught:
        await witness.sources.resolve(source)

    assert SECRET not in f"{caught.value} {caught.value.ref}{witness.said()}"


def test_a_password_with_a_slash_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(RefResolutionError, match="%2F"):
        parse_reference("git+https://me:a/b@host.org/o/r@v1")


async def test_downloads_get_credentials_and_store_none(server: Any, other_server: Any, witness: Witness) -> None:
    server.answers[f"/a.md?access_token={SECRET}&x=1"] = (200, {}, b"one")
    server.answers["/b.md"] = (302, {"Location": f"{other_server.url}/c.md"}, b"")
    other_server.answers["/c.md"] = (200, {}, b"two")
    host = server.url.removeprefix("http://")

    one = await witness.sources.resolve(f"http://me:{SECRET}@{host}/a.md?access_token={SECRET}&x=1")
    again = await witness.sources.resolve(f"http://me:{SECRET}@{host}/a.md?access_token={SECRET}&x=1")
    with pytest.raises(RefResolutionError) as other_token:
        await witness.sources.resolve(f"http://{host}/a.md?access_token={SECRET}2&x=1")
    two = await witness.sources.resolve(f"http://me:{SECRET}@{host}/b.md")

    assert (one.path.read_bytes(), again.from_cache, two.path.read_bytes()) == (b"one", True, b"two")
    assert other_token.value.reason == "not-found"  # not the answer that another token got
    assert all(headers.get("authorization") for path, headers in server.seen if "2&x" not in path)
    assert [headers.get("authorization") for _, headers in other_server.seen] == [None]
    assert files_with(witness.cache_dir, SECRET) == []
    assert "HTTP Request" in witness.said()
    assert SECRET not in f"{witness.said()}{other_token.value}"
