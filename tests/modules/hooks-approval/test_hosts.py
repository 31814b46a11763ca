"""Nothing leaves unasked: what a session has read reaches no host that a person does not know of."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from amplifier_module_hooks_approval import mount as mount_guard
from amplifier_module_tool_filesystem import mount as mount_files
from amplifier_module_tool_web import mount as mount_web

from amplifier_core import HookResult, ModuleCoordinator, ToolResult
from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_kit.concerns import find_pending_call
from amplifier_kit.policy import SessionPolicy

SECRET = "hunter2-correct-horse-battery"


@dataclass
class Host:
    """A server on loopback that writes down what it is asked for."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.name}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = request.split()[1]
        self.asked.append(path)
        location = self.redirects.get(path)
        head = f"302 Found\r\nLocation: {location}" if location else "200 OK\r\nContent-Type: text/plain"
        body = self.pages.get(path, "a page").encode()
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


class Person:
    """Answers questions: with yes, unless one of the refused words is in it."""

    def __init__(self, says: bool = True) -> None:
        self.says = says
        self.requests: list[ApprovalRequest] = []

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        self.requests.append(request)
        return ApprovalResponse(approved=self.says)


class Lookup:
    """A tool of somebody else that uses the network and reports nothing."""

    name = "lookup"
    description = "Looks something up."
    effects = frozenset({"network"})
    input_schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012 - as tools have it

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        self.calls.append(input)
        return ToolResult(output="done")


class Answering(Lookup):
    """A tool of an MCP server."""

    name = "mcp_notes_read"
    effects = frozenset({"read", "network"})

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output="what the server says")


class Session:
    """A session with the guard and the real tools."""

    def __init__(self, coordinator: ModuleCoordinator, person: Person | None) -> None:
        self.coordinator, self.person = coordinator, person

    @property
    def questions(self) -> int:
        return len(self.person.requests) if self.person else 0

    async def prompt(self, text: str) -> None:
        await self.coordinator.hooks.emit("prompt:submit", {"prompt": text})

    async def call(self, tool: str, **tool_input: Any) -> ToolResult:
        result: ToolResult = await self.coordinator.get("tools")[tool].execute(tool_input)
        return result

    async def fetch(self, url: str) -> bool:
        return (await self.call("web_fetch", url=url)).success

    @property
    def is_tainted(self) -> bool:
        return bool(self.coordinator.get_capability("approval.ledger").is_tainted)


@pytest.fixture
async def hosts() -> AsyncIterator[Callable[[], Any]]:
    servers = []

    async def start() -> Host:
        host = Host()
        server = await asyncio.start_server(host.answer, "127.0.0.1", 0)
        host.port = server.sockets[0].getsockname()[1]
        servers.append(server)
        return host

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.fixture
def start_session(tmp_path: Path) -> Callable[..., Any]:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".env").write_text(f"PASSWORD={SECRET}\n")
    (tmp_path / "history").write_text(f"mysql -p{SECRET}\n")

    async def start(person: Person | None = None, network: dict[str, Any] | None = None) -> Session:
        policy = {"network": {"allow": ["*", "private"], **(network or {})}}
        coordinator = ModuleCoordinator()
        coordinator.register_capability("session.policy", SessionPolicy.of(policy, working_dir=project))
        coordinator.register_capability("session.working_dir", str(project))
        await mount_guard(coordinator, {"audit": {"enabled": False}})
        await mount_web(coordinator, {"blocked_domains": []})
        await mount_files(coordinator, {"working_dir": str(project)})
        for tool in (Lookup(), Answering()):
            await coordinator.mount("tools", tool, name=tool.name)
        if person is not None:
            coordinator.get_capability("approval.register_provider")(person)
        return Session(coordinator, person)

    return start


@pytest.mark.parametrize("says", [None, False])
async def test_what_a_file_says_does_not_arrive_at_a_host_that_no_one_agreed_to(
    hosts: Any, start_session: Any, says: bool | None
) -> None:
    host = await hosts()
    session = await start_session(None if says is None else Person(says))
    assert (await session.call("read_file", file_path=".env")).success

    assert not await session.fetch(f"{host.url}/?d={SECRET}")
    assert host.asked == []


async def test_a_host_is_asked_about_once_with_the_whole_address(hosts: Any, start_session: Any) -> None:
    one, other = await hosts(), await hosts()
    session = await start_session(Person())

    assert await session.fetch(f"{one.url}/a?b=c")
    assert await session.fetch(f"{one.url}/another")
    assert session.questions == 1
    assert session.person.requests[0].details["url"] == f"{one.url}/a?b=c"

    assert await session.fetch(f"{other.url}/")
    assert session.questions == 2


async def test_a_host_that_the_policy_names_is_reached_unasked(hosts: Any, start_session: Any) -> None:
    host = await hosts()
    session = await start_session(network={"allow": ["*", "private", "127.0.0.1"]})

    assert await session.fetch(f"{host.url}/x")


async def test_a_denied_host_is_not_asked_about(hosts: Any, start_session: Any) -> None:
    host = await hosts()
    session = await start_session(Person(), network={"deny": ["127.0.0.1"]})

    assert not await session.fetch(f"{host.url}/x")
    assert (session.questions, host.asked) == (0, [])


async def test_ten_addresses_of_a_persons_message_are_read_unasked_and_the_eleventh_is_not(
    hosts: Any, start_session: Any
) -> None:
    host = await hosts()
    session = await start_session(Person(says=False))
    urls = [f"{host.url}/page/{number}" for number in range(11)]
    await session.prompt(f"Read {', '.join(urls[:5])} and ({urls[5]}). " + "\n".join(urls[6:]))

    assert [await session.fetch(url) for url in urls] == [True] * 10 + [False]
    assert await session.fetch(urls[0])
    assert not await session.fetch(f"{host.url}/elsewhere")


async def test_addresses_on_a_page_are_read_unasked(hosts: Any, start_session: Any) -> None:
    host, linked = await hosts(), await hosts()
    host.pages["/"] = f"See {linked.url}/guide#start."
    session = await start_session(Person(says=False))
    await session.prompt(f"summarize {host.url}/")

    assert await session.fetch(f"{host.url}/")
    assert await session.fetch(f"{linked.url}/guide")
    assert not await session.fetch(f"{linked.url}/guide?more=1")
    assert not await session.fetch(f"{linked.url}/gui")


def _forms(value: str) -> dict[str, str]:
    return {
        "query": f"/?d={value}",
        "path": f"/{value}/x",
        "a piece": f"/?d={value[3:16]}",
        "percent": "/?d=" + "".join(f"%{ord(letter):02x}" for letter in value),
        "percent twice": f"/?d={quote(''.join(f'%{ord(letter):02x}' for letter in value))}",
        "base64": f"/?d={base64.b64encode(value.encode()).decode().rstrip('=')}",
        "base64 for addresses": f"/?d={base64.urlsafe_b64encode(value.encode()).decode()}",
        "hexadecimal": f"/{value.encode().hex()}",
        "in two pieces": f"/{value[:10]}/{value[10:20]}",
        "upper case": f"/{value.upper()}",
        "fragment": f"/#{value}",
    }


@pytest.mark.parametrize("form", _forms(SECRET))
async def test_an_address_with_something_that_was_read_in_it_is_asked_about_wherever_it_stands(
    hosts: Any, start_session: Any, form: str
) -> None:
    host, url = await hosts(), _forms(SECRET)[form]
    session = await start_session(Person(says=False))
    await session.prompt(f"read {host.url}{url}")
    assert (await session.call("read_file", file_path=".env")).success

    assert not await session.fetch(f"{host.url}{url}")
    assert host.asked == []


async def test_a_redirect_to_another_host_is_asked_about_before_it_is_followed(hosts: Any, start_session: Any) -> None:
    host, other = await hosts(), await hosts()
    host.redirects = {"/moved": f"{other.url}/?d={SECRET}", "/inside": "/new"}
    session = await start_session(Person(says=False))
    await session.prompt(f"read {host.url}/moved and {host.url}/inside")

    assert await session.fetch(f"{host.url}/inside")
    assert session.questions == 0
    assert not await session.fetch(f"{host.url}/moved")
    assert other.asked == []
    assert session.person.requests[0].details["detail"] == f"{other.url}/?d={SECRET}"

    session.person.says = True
    assert await session.fetch(f"{host.url}/moved")
    assert other.asked == [f"/?d={SECRET}"]


async def test_a_session_with_outside_content_and_private_data_is_tainted_and_asks_each_time(
    hosts: Any, start_session: Any
) -> None:
    host, person = await hosts(), Person()
    session = await start_session(person)
    await session.prompt(f"read {host.url}/a and {host.url}/b")
    assert await session.fetch(f"{host.url}/a")
    assert await session.fetch(f"{host.url}/c")
    assert (session.questions, session.is_tainted) == (1, False)

    assert (await session.call("read_file", file_path="../history")).success

    assert session.is_tainted
    assert [await session.fetch(f"{host.url}/{page}") for page in "abc"] == [True] * 3
    assert session.questions == 4
    person.says = False
    assert not await session.fetch(f"{host.url}/a")


async def test_a_tainted_session_reaches_hosts_that_are_named(hosts: Any, start_session: Any) -> None:
    host = await hosts()
    session = await start_session(network={"allow": ["*", "private", "127.0.0.1"]})
    assert (await session.call("mcp_notes_read")).success
    assert session.is_tainted

    assert await session.fetch(f"{host.url}/x")


async def test_a_foreign_tool_is_asked_about_by_the_host_in_its_input(start_session: Any) -> None:
    session = await start_session(Person())

    for given in ({"url": "https://a.example/x"}, {"url": "https://a.example/y", "data": "z"}, {"host": "b.example"}):
        assert (await session.call("lookup", **given)).success
    assert session.questions == 2

    for word in ("one", "two"):
        assert (await session.call("lookup", query=word)).success
    assert session.questions == 3


async def test_a_foreign_tool_that_sends_more_than_an_address_is_not_unasked(start_session: Any) -> None:
    session = await start_session(Person(says=False))
    await session.prompt("look at https://a.example/x")

    assert not (await session.call("lookup", url="https://a.example/x", body="z")).success
    assert (await session.call("lookup", url="https://a.example/x")).success


async def test_a_server_of_tools_is_named_by_its_configuration_and_not_asked_about(start_session: Any) -> None:
    session = await start_session()

    assert (await session.call("mcp_notes_read", query="x")).success


async def test_a_session_that_was_tainted_is_so_when_it_is_resumed(hosts: Any, start_session: Any) -> None:
    host = await hosts()
    session = await start_session(Person(says=False))
    history = []
    for number, (tool, given) in enumerate(
        (("web_fetch", {"url": host.url}), ("read_file", {"file_path": "../history"}))
    ):
        call = {"id": f"call-{number}", "tool": tool, "arguments": given}
        history += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "what it returned"},
        ]

    class History:
        async def get_messages(self) -> list[dict[str, Any]]:
            return history

    await session.coordinator.mount("context", History())
    await session.prompt(f"go on with {host.url}/a")

    assert session.is_tainted
    assert not await session.fetch(f"{host.url}/a")
    assert host.asked == []


async def test_that_a_session_becomes_tainted_is_published_once(hosts: Any, start_session: Any) -> None:
    host = await hosts()
    session = await start_session(Person())
    published = []

    async def hear(event: str, data: dict[str, Any]) -> HookResult:
        published.append(data["tool_name"])
        return HookResult()

    session.coordinator.hooks.register("session:tainted", hear, name="listener")

    assert await session.fetch(f"{host.url}/a")
    assert published == []
    for _ in range(2):
        assert (await session.call("read_file", file_path="../history")).success
    assert published == ["read_file"]


@pytest.mark.parametrize("path", ["AGENTS.md", "link.md", ".github/workflows/ci.yml"])
async def test_saving_to_a_place_that_runs_is_asked_about_by_its_name_once(
    hosts: Any, start_session: Any, tmp_path: Path, path: str
) -> None:
    host = await hosts()
    (tmp_path / "project/link.md").symlink_to("AGENTS.md")
    session = await start_session(Person(), network={"allow": ["*", "private", "127.0.0.1"]})
    asked: list[Any] = []

    async def decide(request: ApprovalRequest) -> ApprovalResponse:
        call = find_pending_call()
        asked.append(" ".join(concern.words for concern in call.concerns) if call else None)
        return ApprovalResponse(approved=True)

    session.person.request_approval = decide
    for _ in range(2):
        assert (await session.call("web_fetch", url=f"{host.url}/a", save_to_file=path)).success

    reason = "build servers" if path.endswith("yml") else "AGENTS.md instructs every later session here"
    assert reason in asked[0]
    assert asked[1:] == [""], "the place is agreed to, and the write is asked about as any other"


async def test_saving_to_a_place_that_runs_is_refused_where_nobody_can_be_asked(
    hosts: Any, start_session: Any, tmp_path: Path
) -> None:
    host = await hosts()
    session = await start_session(network={"allow": ["*", "private", "127.0.0.1"]})

    assert not (await session.call("web_fetch", url=f"{host.url}/a", save_to_file="CLAUDE.md")).success
    assert (host.asked, (tmp_path / "project/CLAUDE.md").exists()) == ([], False)
