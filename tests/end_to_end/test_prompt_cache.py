"""How much of what a model reads comes from the vendor's cache, through the real client, over a whole session."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anthropic_server import MESSAGES, AnthropicServer, reply, text, tool_use

import amplifierd
from amplifierd.agreements import KEY, Agreement, Agreements

TURNS, CALLS = 8, 3
USERLAND = [{"module": f"hooks-{name}"} for name in ("status-context", "todo-display", "mode")]
TODOS = [{"content": f"Step {n}", "activeForm": f"Step {n}", "status": "pending"} for n in range(4)]


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer() as server:
        yield server


def blocks_of(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a request in the order in which the vendor caches them, and whether each is marked."""
    listed = [*body.get("tools", ()), *body["system"]]
    for message in body["messages"]:
        content = message["content"]
        listed += content if isinstance(content, list) else [{"type": "text", "text": content}]
    for block in listed:
        plain = {key: value for key, value in block.items() if key != "cache_control"}
        yield json.dumps(plain, sort_keys=True), "cache_control" in block


def share_from_cache(bodies: list[dict[str, Any]]) -> float:
    """Return which part of all characters was behind a mark in an earlier request, in the same words from its start."""
    cached: set[tuple[str, ...]] = set()
    read = whole = 0
    for body in bodies:
        blocks = list(blocks_of(body))
        texts = [text for text, _ in blocks]
        whole += sum(map(len, texts))
        hits = [n for n in range(1, len(texts) + 1) if tuple(texts[:n]) in cached]
        read += sum(map(len, texts[: max(hits, default=0)]))
        cached |= {tuple(texts[: n + 1]) for n, (_, is_marked) in enumerate(blocks) if is_marked}
    return read / whole


@pytest.mark.parametrize("hooks", [[], USERLAND], ids=["coding", "with status, todo display and modes"])
async def test_almost_everything_is_read_from_the_cache(
    server: AnthropicServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hooks: list[dict[str, Any]]
) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.md").write_text("What is known. " * 60)
    for turn in range(TURNS):
        for number in range(CALLS):
            todo = tool_use(f"c{turn}-{number}", "todo", {"action": "create", "todos": TODOS})
            look = tool_use(f"c{turn}-{number}", "read_file", {"file_path": "notes.md"})
            server.script(MESSAGES, reply(todo if hooks and not turn and not number else look))
        server.script(MESSAGES, reply(text(f"That was turn {turn}. " * 10)))
    allowing = {"security": {"allow_override_modules": True}}
    home = amplifierd.open_home(tmp_path / "home", offline=True, overrides=allowing)
    home.keys.set("provider-anthropic", str(server.key))
    address = urlsplit(server.url)
    Agreements(home.paths).add(Agreement("provider-anthropic", KEY, (f"{address.scheme}://{address.netloc}",)))
    provider = {"module": "provider-anthropic", "config": {"base_url": server.url, "max_retries": 0}}
    overrides: dict[str, Any] = {"providers": [provider], **({"hooks": hooks} if hooks else {})}

    async with home.sessions.open(profile="foundation/coding", overrides=overrides, working_dir=work) as session:
        for turn in range(TURNS):
            assert (await session.execute(f"Look at the notes, please, and say more about part {turn}.")).status == (
                "completed"
            )
    await home.sessions.close()

    first = server.bodies[0]
    tools, system = json.dumps(first["tools"]), "".join(block["text"] for block in first["system"])
    assert len(server.bodies) == TURNS * (CALLS + 1)
    assert len(tools) + len(system) < 16_000
    assert share_from_cache(server.bodies) >= 0.94
