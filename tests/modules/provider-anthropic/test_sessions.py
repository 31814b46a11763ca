"""Real sessions against the vendor's stand-in."""

import json
from pathlib import Path
from typing import Any

from amplifier_module_provider_mock import MockProvider
from anthropic_server import AnthropicServer, markers, reply, text, thinking, tool_use
from vendor_server import Answer, Request

from amplifier_core import AmplifierSession, ToolResult
from amplifier_kit.providers.stream import STREAM_EVENTS

MODULES = Path(__file__).parents[3] / "modules"
STEPS = 50


class CountTool:
    """Adds one."""

    name = "add_one"
    description = "Add one to a number."
    input_schema = {  # noqa: RUF012 - as tools have it
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    }

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output=str(input["number"] + 1))


def counting(request: Request) -> Answer:
    """Call the tool with what it returned last, until it has counted far enough."""
    last = request.body["messages"][-1]["content"][-1]
    number = int(last["content"]) if last["type"] == "tool_result" else 0
    if number >= STEPS:
        return reply(text(f"That makes {number}."))(request)
    call = tool_use(f"toolu_{number}", "add_one", {"number": number})
    return reply(thinking(f"So far {number}.", f"sig-{number}"), text("Next."), call)(request)


def module(module_id: str, **extra: Any) -> dict[str, Any]:
    return {"module": module_id, "source": str(MODULES / module_id), **extra}


def plan(*providers: dict[str, Any]) -> dict[str, Any]:
    session = {
        "orchestrator": module("loop-streaming", config={"max_iterations": 2 * STEPS}),
        "context": module("context-simple"),
    }
    return {"session": session, "providers": list(providers)}


def anthropic_entry(server: AnthropicServer, **config: Any) -> dict[str, Any]:
    return module("provider-anthropic", config={"api_key": server.key, "base_url": server.url, **config})


async def test_a_conversation_with_fifty_tool_calls_runs_end_to_end(server: AnthropicServer) -> None:
    server.always = counting
    used: list[str] = []

    async def keep(event: str, data: dict[str, Any]) -> None:
        used.append(data["tool_name"])

    async with AmplifierSession(plan(anthropic_entry(server, reasoning_effort="high"))) as session:
        await session.coordinator.mount("tools", CountTool(), name="add_one")
        session.coordinator.hooks.register("tool:post", keep)
        first = await session.execute("Count to fifty.")
        server.always = reply(text("You are welcome."))
        second = await session.execute("Thanks.")
        (cost,) = await session.coordinator.collect_contributions("session.cost")

    assert f"That makes {STEPS}." in first
    assert second == "You are welcome."
    assert used == ["add_one"] * STEPS
    assert float(cost["cost_usd"]) > 0
    last = server.bodies[STEPS]
    signatures = [
        block["signature"]
        for message in last["messages"]
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert signatures == [f"sig-{number}" for number in range(STEPS)]
    assert all(len(list(markers(body))) <= 4 for body in server.bodies)
    assert [where for where in markers(last) if where.startswith("messages")] == [
        "messages.98.content.0.tool_result",
        "messages.100.content.0.tool_result",
    ]


class Turn:
    """One turn of a session with a mock provider in front, and what was heard of it."""

    def __init__(self, *providers: dict[str, Any]) -> None:
        self._plan = plan(*providers)
        self.stream: list[tuple[str, Any]] = []

    async def run(self) -> str:
        async def keep(event: str, data: dict[str, Any]) -> None:
            kept = ("block_index", "block_type", "text", "name")
            self.stream.append((event, {key: data[key] for key in kept if key in data}))

        self._plan["session"]["orchestrator"]["config"]["default_provider"] = "mock"
        async with AmplifierSession(self._plan) as session:
            await session.coordinator.mount("tools", CountTool(), name="add_one")
            for event in STREAM_EVENTS:
                session.coordinator.hooks.register(event, keep)
            answer: str = await session.execute("Count.")
            assert isinstance(session.coordinator.get("providers", "mock"), MockProvider)
        return answer


def lines_of(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


async def test_a_recorded_session_is_replayed_without_the_vendor(server: AnthropicServer, tmp_path: Path) -> None:
    script = (reply(thinking("hm"), tool_use("toolu_1", "add_one", {"number": 1})), reply(text("It is 2.")))
    server.script("POST /v1/messages", *script)
    path = str(tmp_path / "session.jsonl")
    recording = Turn(module("provider-mock", config={"record": path, "provider": "anthropic"}), anthropic_entry(server))
    replaying = Turn(module("provider-mock", config={"replay": path}))

    recorded = await recording.run()
    asked = len(server.requests)
    replayed = await replaying.run()
    written = lines_of(path)

    assert "It is 2." in recorded
    assert replayed == recorded
    assert (asked, len(server.requests)) == (2, 2)
    assert replaying.stream == recording.stream
    assert len(recording.stream) > 0
    assert [line["response"]["finish_reason"] for line in written] == ["tool_use", "end_turn"]
    assert server.key not in json.dumps(written)
