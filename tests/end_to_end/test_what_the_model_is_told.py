"""What reaches a vendor: instruction, context files, `AGENTS.md`, mentioned files and agents, once and in their order.

Every test reads the request that arrived at the vendor's stand-in.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from anthropic_server import AnthropicServer
from openai_server import OpenAIServer

import amplifierd
from amplifierd.agreements import KEY, Agreement, Agreements
from amplifierd.home import Home

Kind = Literal["profile", "bundle", "plan"]

OWN_TEXT = {
    "profile": [
        "You are a software engineer. Your working directory",
        "# How you work",
        "# Principles",
        "# Working with tools",
        "# Delegating",
        "# What good code looks like here",
    ],
    "bundle": ["BUNDLE-BODY", "BUNDLE-MENTIONED"],
    "plan": [],
}
OF_THE_REPOSITORY = ["ROOT-RULES", "ROOT-DOC", "MIDDLE-RULES", "MIDDLE-DOC", "INNER-RULES"]
BUNDLE = """\
---
bundle: {name: worker, version: 1.0.0}
session: {orchestrator: {module: loop-streaming}, context: {module: context-simple}}
tools: [{module: tool-task}]
agents: {reader: {description: AGENT-THAT-READS, instruction: Read.}}
---

BUNDLE-BODY @worker:more.md
"""


class Vendor:
    """A vendor's stand-in, and the requests that reached it as texts: the system's first, then the messages."""

    def __init__(self, server: AnthropicServer | OpenAIServer) -> None:
        self._server = server
        is_anthropic = isinstance(server, AnthropicServer)
        self.module = "provider-anthropic" if is_anthropic else "provider-openai"
        self.config = {"base_url": server.url if is_anthropic else server.base_url, "max_retries": 0}  # type: ignore[union-attr]
        self.key = str(server.key)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self._server.bodies if isinstance(self._server, AnthropicServer) else self._server.sent()

    def texts(self, number: int = -1) -> list[str]:
        body = self.requests[number]
        head = [json.dumps(body[key]) for key in ("system", "instructions") if body.get(key)]
        return head + [_without_cache_marks(message) for message in body.get("messages") or body["input"]]

    def agents(self, number: int = -1) -> str:
        """Return how the request describes the tool that delegates."""
        tools = [tool.get("function", tool) for tool in self.requests[number]["tools"]]
        return next((tool["description"] for tool in tools if tool["name"] in ("task", "delegate")), "")


def _without_cache_marks(message: Any) -> str:
    return re.sub(r', "cache_control": {[^}]*}', "", json.dumps(message, ensure_ascii=False))


@pytest.fixture(params=["anthropic", "openai"])
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    server = AnthropicServer() if request.param == "anthropic" else OpenAIServer()
    with server:
        yield Vendor(server)


@pytest.fixture
def home(tmp_path: Path, vendor: Vendor) -> Home:
    overrides = {"security": {"allow_home_mentions": True}}
    home = amplifierd.open_home(tmp_path / "home", offline=True, overrides=overrides)
    home.keys.set(vendor.module, vendor.key)
    address = urlsplit(vendor.config["base_url"])
    Agreements(home.paths).add(Agreement(vendor.module, KEY, (f"{address.scheme}://{address.netloc}",)))
    return home


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with three `AGENTS.md`; the directory of the innermost is where the session works."""
    root, work = tmp_path / "repository", tmp_path / "repository/middle/inner"
    (root / "docs").mkdir(parents=True)
    (root / ".git").mkdir()
    work.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("OUTSIDE-RULES\n")
    (root / "AGENTS.md").write_text("ROOT-RULES, see @docs/root.md\n")
    (root / "docs/root.md").write_text("ROOT-DOC\n")
    (root / "middle/AGENTS.md").write_text("MIDDLE-RULES, see @near.md\n")
    (root / "middle/near.md").write_text("MIDDLE-DOC\n")
    (work / "AGENTS.md").write_text("INNER-RULES\n")
    (work / "notes.md").write_text("NOTES-ONE\n")
    return work


def source(kind: Kind, vendor: Vendor, folder: Path) -> dict[str, Any]:
    """Return what `sessions.open` takes for one of the three kinds of agents on this vendor."""
    provider = {"module": vendor.module, "config": vendor.config}
    if kind == "profile":
        return {"profile": "foundation/coding", "overrides": {"providers": [provider]}}
    if kind == "bundle":
        folder.mkdir()
        (folder / "bundle.md").write_text(BUNDLE.replace("tools:", f"providers: {json.dumps([provider])}\ntools:"))
        (folder / "more.md").write_text("BUNDLE-MENTIONED\n")
        return {"bundle": (folder / "bundle.md").as_uri()}
    agents = {"reader": {"description": "AGENT-THAT-READS", "instruction": "Read."}}
    session = {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}}
    return {"plan": {"session": session, "providers": [provider], "tools": [{"module": "tool-task"}], "agents": agents}}


def assert_once_and_in_order(texts: Sequence[str], markers: Sequence[str]) -> None:
    whole = "\n".join(texts)
    assert {marker: whole.count(marker) for marker in markers} == dict.fromkeys(markers, 1)
    assert sorted(markers, key=whole.index) == list(markers)


@pytest.mark.parametrize("kind", ["profile", "bundle", "plan"])
async def test_the_request_says_everything_once_and_in_order(
    home: Home, vendor: Vendor, work: Path, tmp_path: Path, kind: Kind
) -> None:
    beginning = [*OWN_TEXT[kind], *OF_THE_REPOSITORY]
    described = "Finds out how something" if kind == "profile" else "AGENT-THAT-READS"

    async with home.sessions.open(**source(kind, vendor, tmp_path / "agent"), working_dir=work) as session:
        assert (await session.execute("PROMPT-ONE about @notes.md")).status == "completed"
        first = vendor.texts()
        await session.execute("PROMPT-TWO about @notes.md and @AGENTS.md")
        second = vendor.texts()
    async with home.sessions.resume(session.session_id) as session:
        await session.execute("PROMPT-THREE about @./notes.md")
        third = vendor.texts()
        (work / "notes.md").write_text("NOTES-CHANGED\n")
        await session.execute("PROMPT-FOUR about @notes.md")
        (work / "notes.md").write_text("NOTES-ONE\n")
        await session.execute("PROMPT-FIVE about @notes.md")

    assert_once_and_in_order(first, [*beginning, "NOTES-ONE", "PROMPT-ONE"])
    assert described in vendor.agents(0)
    assert described in vendor.agents()
    assert "OUTSIDE-RULES" not in "".join(first)
    assert_once_and_in_order(second, [*beginning, "NOTES-ONE", "PROMPT-ONE", "PROMPT-TWO"])
    assert_once_and_in_order(third, [*beginning, "NOTES-ONE", "PROMPT-ONE", "PROMPT-TWO", "PROMPT-THREE"])
    assert third[: len(second)] == second, "what was said before is sent as it was, also after resuming"
    last = vendor.texts()
    assert_once_and_in_order(last, [*beginning, "NOTES-CHANGED", "PROMPT-FIVE"])
    assert "\n".join(last).count("NOTES-ONE") == 2, (
        "what a file says now comes again when it said something else before"
    )
    await home.sessions.close()


SECRET = "PRIVATE KEY OF THE TEST"


@pytest.mark.parametrize("kind", ["profile", "bundle", "plan"])
async def test_what_the_policy_refuses_never_reaches_the_request(
    home: Home, vendor: Vendor, work: Path, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    secret = tmp_path / "user/.ssh/id_rsa"
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET)
    for link in (work / "AGENTS.md", work.parent / "near.md", work / "linked.md"):
        link.unlink(missing_ok=True)
        link.symlink_to(secret)
    agent = source(kind, vendor, tmp_path / "agent")
    if kind == "bundle":
        (tmp_path / "agent/more.md").unlink()
        (tmp_path / "agent/more.md").symlink_to(secret)
    prompt = f"PROMPT @~/.ssh/id_rsa @linked.md @{secret} @../../../user/.ssh/id_rsa @nowhere.md @env:x.md"

    async with home.sessions.open(**agent, working_dir=work) as session:
        assert (await session.execute(prompt)).status == "completed"
    async with home.sessions.resume(session.session_id) as session:
        await session.execute("And again @linked.md")

    assert len(vendor.requests) == 2
    assert SECRET not in json.dumps(vendor.requests)
    assert_once_and_in_order(vendor.texts(), ["ROOT-RULES", "MIDDLE-RULES", "PROMPT"])
    events = home.sessions.events(session.session_id)
    unresolved = [event["data"] for event in events if event["event"] == "mention:unresolved"]
    mentions = ["@near.md", "@AGENTS.md", *prompt.split()[1:], "@linked.md"]
    assert [data["mention"] for data in unresolved] == mentions
    assert all(data["reason"] for data in unresolved)
    assert SECRET not in json.dumps(events)
    await home.sessions.close()
