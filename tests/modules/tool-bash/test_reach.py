"""Commands that reach only the hosts that a person agreed to, through a proxy."""

import asyncio
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sandboxes import needs_sandbox, place_outside_tmp

from amplifier_kit.approval import CONSENT, GATE, Consent
from amplifier_kit.concerns import CONCERN, LEDGER, Concern
from amplifier_kit.policy import SessionPolicy

pytestmark = needs_sandbox

PYTHON = os.path.realpath(sys.executable)  # not that of an environment, which commands may not see
OUTSIDE = "127.0.0.2"  # this machine's, but not the loopback address that a command finds inside as well


@dataclass
class Answer:
    approved: bool
    reason: str = "not there"


@dataclass
class Session:
    """A guard that says the same of every call, and a person who is asked about hosts."""

    shell: Any
    says: bool | None = True
    asked: list[Concern] = field(default_factory=list)

    async def ask(self, concern: Concern, tool_name: str) -> Answer:
        self.asked.append(concern)
        if self.says is None:
            await asyncio.Event().wait()
        return Answer(self.says is True)

    async def run(self, command: str) -> Any:
        return await self.shell.run(command, timeout=20)


@dataclass
class Server:
    """Answers HTTP requests on an address that stands for another machine."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    pages: dict[str, bytes] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{OUTSIDE}:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line = head.split("\r\n")[0]
        self.requests.append(line)
        if line.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            inner = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(inner.split("\r\n")[0])
        body = self.pages.get(line.split(" ")[1], b"hello")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    there = Server()
    listening = await asyncio.start_server(there.answer, OUTSIDE, 0)
    there.port = listening.sockets[0].getsockname()[1]
    yield there
    listening.close()
    await listening.wait_closed()


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """One name that leads to this machine, and one that nobody here knows."""
    known = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **named: Any) -> Any:
        if host == "far.example":
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return known(OUTSIDE if host == "near.example" else host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with place_outside_tmp() as directory:
        yield directory


StartSession = Callable[..., Any]


@pytest.fixture
def start_session(mount_shell: Any, place: Path) -> StartSession:
    async def start(
        consent: Consent = Consent.APPROVED,
        says: bool | None = True,
        *,
        allow: tuple[str, ...] = ("*", "private"),
        commands: str = "hosts",
        **config: Any,
    ) -> Session:
        given = {"sandbox": "required", "working_dir": str(place), "safety_profile": "unrestricted", **config}
        session = Session(await mount_shell(**given), says)
        rules = {"network": {"allow": list(allow), "commands": commands}}
        offered = {
            CONSENT: lambda tool_name, tool_input: consent,
            GATE: session.ask,
            CONCERN: session.ask,
            "session.policy": SessionPolicy.of(rules, working_dir=place),
        }
        for name, value in offered.items():
            session.shell.coordinator.register_capability(name, value)
        return session

    return start


async def test_a_host_that_the_command_does_not_name_is_asked_about_once(
    server: Server, start_session: StartSession
) -> None:
    session = await start_session()

    result = await session.run(f"a=http; curl -sS $a://{OUTSIDE}:{server.port}/x $a://{OUTSIDE}:{server.port}/y")

    assert result.success, result.error
    assert result.output["stdout"] == "hellohello"
    assert [line.split(" ")[1] for line in server.requests] == ["/x", "/y"]
    assert [concern.subject for concern in session.asked] == [f"{OUTSIDE}:{server.port}"]
    assert f"http://{OUTSIDE}:{server.port}/x" in session.asked[0].words


async def test_an_environment_in_a_directory_that_commands_do_not_see_is_no_obstacle(
    server: Server, start_session: StartSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as hidden:
        (Path(hidden) / "python").symlink_to(PYTHON)
        monkeypatch.setattr(sys, "executable", f"{hidden}/python")
        session = await start_session()

        result = await session.run(f"curl -sS {server.url}/x")

    assert result.output["stdout"] == "hello"


async def test_a_host_in_an_approved_command_or_in_the_policy_is_not_asked_about(
    server: Server, start_session: StartSession
) -> None:
    session = await start_session(says=False)
    assert (await session.run(f"curl -sS --fail {server.url}/x")).success

    named = await start_session(says=False, allow=("*", "private", OUTSIDE))
    assert (await named.run(f"a=http; curl -sS --fail $a://{OUTSIDE}:{server.port}/x")).success

    assert (session.asked, named.asked) == ([], [])


@pytest.mark.parametrize("way", ["plain", "tunnel", "around the proxy"])
async def test_a_host_that_nobody_agrees_to_is_not_reached(
    server: Server, start_session: StartSession, way: str
) -> None:
    session = await start_session(says=False)
    option = {"plain": "", "tunnel": "--proxytunnel", "around the proxy": "--noproxy '*'"}[way]

    result = await session.run(f"a=http; curl -sS --fail-with-body {option} $a://{OUTSIDE}:{server.port}/x")

    assert not result.success
    assert server.requests == []
    if way == "plain":
        assert "is not reached: not there" in result.output["stdout"]


async def test_a_denied_address_is_refused_whatever_a_person_says(server: Server, start_session: StartSession) -> None:
    session = await start_session(allow=("*",))

    result = await session.run(f"curl -sS --fail-with-body {server.url}/x")

    assert not result.success
    assert "policy.network.deny" in result.output["stdout"]
    assert (server.requests, session.asked) == ([], [])


async def test_a_name_that_leads_to_a_denied_address_is_refused(server: Server, start_session: StartSession) -> None:
    session = await start_session(allow=("*", "near.example"))

    result = await session.run(f"curl -sS --fail-with-body http://near.example:{server.port}/x")

    assert not result.success
    assert f"leads to {OUTSIDE} (policy.network.deny)" in result.output["stdout"]
    assert server.requests == []


async def test_a_command_has_a_loopback_of_its_own(start_session: StartSession) -> None:
    session = await start_session(says=False)

    result = await session.run(
        f"{shlex.quote(PYTHON)} -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & "
        "curl -sS --retry 30 --retry-connrefused --retry-delay 0 --retry-max-time 10 -o /dev/null"
        " -w '%{http_code}' http://127.0.0.1:8123/"
    )

    assert result.output["stdout"] == "200"


def _repository(origin: Path) -> dict[str, bytes]:
    """Return the files of an empty repository as a plain web server has them."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(origin)], check=True)
    subprocess.run(["git", "-C", str(origin), "update-server-info"], check=True)
    return {f"/repo/{file.relative_to(origin)}": file.read_bytes() for file in origin.rglob("*") if file.is_file()}


async def test_git_and_pip_work_through_the_proxy(server: Server, start_session: StartSession, place: Path) -> None:
    server.pages |= _repository(place / "origin")
    server.pages["/repo/info/refs?service=git-upload-pack"] = b""
    server.pages["/simple/nothing/"] = b"<!doctype html><a href='/nothing-1.0.tar.gz'>nothing-1.0.tar.gz</a>"
    session = await start_session()

    cloned = await session.run(f"a=http; git clone $a://{OUTSIDE}:{server.port}/repo copy && ls copy/.git/HEAD")
    listed = await session.run(
        f"{shlex.quote(PYTHON)} -m pip --disable-pip-version-check --isolated download "
        "--no-cache-dir --retries 0 "
        f"--trusted-host {OUTSIDE} --index-url {server.url}/simple --dest . --no-deps --only-binary :all: nothing"
    )

    assert cloned.success, cloned.output
    assert any("/repo/info/refs" in line for line in server.requests)
    assert "/simple/nothing/" in str(server.requests), listed.output
    assert len(session.asked) == 1


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_npm_works_through_the_proxy(server: Server, start_session: StartSession) -> None:
    server.pages["/nothing"] = b'{"name": "nothing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {}}}'
    session = await start_session()

    await session.run(
        f"a=http; HOME=$PWD npm view nothing dist-tags --registry $a://{OUTSIDE}:{server.port}/ --cache $PWD/cache"
    )

    assert [concern.subject for concern in session.asked] == [f"{OUTSIDE}:{server.port}"]
    assert any(" /nothing " in line for line in server.requests)


async def test_the_persons_own_proxy_is_used(
    server: Server, start_session: StartSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:word@{OUTSIDE}:{server.port}")
    monkeypatch.setenv("https_proxy", f"http://{OUTSIDE}:{server.port}")
    session = await start_session()

    assert (await session.run("curl -sS http://far.example/x && curl -sS -p http://far.example:81/y")).success

    assert server.requests == [
        "GET http://far.example/x HTTP/1.1",
        "CONNECT far.example:81 HTTP/1.1",
        "GET /y HTTP/1.1",
    ]


async def test_a_remembered_yes_reaches_only_the_hosts_that_the_command_names(
    server: Server, start_session: StartSession
) -> None:
    session = await start_session(Consent.REMEMBERED, says=False, commands="open")
    assert (await session.run(f"curl -sS --fail {server.url}/x")).success
    assert not (await session.run(f"a=http; curl -sS --fail $a://{OUTSIDE}:{server.port}/y")).success
    assert len(server.requests) == 1

    approved = await start_session(Consent.APPROVED, says=False, commands="open")
    assert (await approved.run(f"a=http; curl -sS --fail $a://{OUTSIDE}:{server.port}/y")).success


async def test_a_remembered_yes_names_no_host_in_a_tainted_session(server: Server, start_session: StartSession) -> None:
    session = await start_session(Consent.REMEMBERED, says=False, commands="open")

    @dataclass
    class Tainted:
        is_tainted: bool = True

    session.shell.coordinator.register_capability(LEDGER, Tainted())

    assert not (await session.run(f"curl -sS --fail {server.url}/x")).success
    assert server.requests == []


async def test_what_nobody_was_asked_about_has_no_proxy(server: Server, start_session: StartSession) -> None:
    session = await start_session(Consent.UNASKED)

    assert not (await session.run(f"curl -sS --fail {server.url}/x")).success
    assert (server.requests, session.asked) == ([], [])


async def test_commands_that_cannot_be_bound_to_hosts_do_not_run(start_session: StartSession) -> None:
    session = await start_session(sandbox="off")

    result = await session.run("true")

    assert not result.success
    assert result.error["code"] == "sandbox_unavailable"
