"""One conversation over several sessions and vendors: what one model thought, called and saw, another can go on from.

The vendors' stand-ins refuse what the vendors refuse, so a block that the other does not take would fail the turn.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import MESSAGES, AnthropicServer, redacted, reply, text, thinking, tool_use
from openai_server import OpenAIServer, Said
from turns import FunctionTool

from amplifier_core import AmplifierSession, ImageBlock, TextBlock, ToolResult

MODULES = Path(__file__).parents[2] / "modules"
PICTURE = "aGVsbG8="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}

Messages = list[dict[str, Any]]


class Anthropic:
    """Anthropic's stand-in, as one of the two vendors."""

    def __init__(self, server: AnthropicServer) -> None:
        self._server = server
        config = {"api_key": server.key, "base_url": server.url, "reasoning_effort": "high", "max_retries": 0}
        self.entry = module("provider-anthropic", config)

    def script_turn(self, number: int) -> None:
        """Have the model think, say something and look twice, and then answer."""
        calls = [tool_use(f"toolu_{number}_{one}", "look", {"place": one}) for one in ("here", "there")]
        first = reply(thinking("hm", f"sig-{number}"), redacted("black"), text("I will look."), *calls)
        self._server.script(MESSAGES, first, reply(thinking("so", f"end-{number}"), text(f"Seen, {number}.")))

    @property
    def requests(self) -> Messages:
        return self._server.bodies

    @property
    def own_thoughts(self) -> list[str]:
        """What the model was given back of what it thought, in the latest request."""
        blocks = [block for message in self.requests[-1]["messages"] for block in message["content"]]
        return [block["signature"] for block in blocks if block["type"] == "thinking"]

    def expected_thoughts(self, turns: list[int]) -> list[str]:
        return [f"{kind}-{number}" for number in turns for kind in ("sig", "end")][:-1]


class OpenAI:
    """OpenAI's stand-in through one of its APIs, as one of the two vendors."""

    def __init__(self, server: OpenAIServer, api: str) -> None:
        self._server, self._api = server, api
        config = {"api": api, "api_key": server.key, "base_url": server.base_url, "max_retries": 0}
        self.entry = module("provider-openai", {**config, "reasoning_effort": "high"})

    def script_turn(self, number: int) -> None:
        """Have the model think, say something and look twice, and then answer; its ids are not made for others."""
        calls = [(f"functions.look:{number}.{one}", "look", {"place": one}) for one in ("here", "there")]
        self._server.say(
            Said("I will look.", thinking="hm", encrypted=f"sig-{number}", calls=calls),
            Said(f"Seen, {number}.", thinking="so", encrypted=f"end-{number}"),
        )

    @property
    def requests(self) -> Messages:
        return self._server.sent()

    @property
    def own_thoughts(self) -> list[str]:
        """What the model was given back of what it thought, in the latest request."""
        items = self.requests[-1].get("input", [])
        return [item["encrypted_content"] for item in items if item.get("type") == "reasoning"]

    def expected_thoughts(self, turns: list[int]) -> list[str]:
        if self._api == "chat":  # which takes no thinking back
            return []
        return [f"{kind}-{number}" for number in turns for kind in ("sig", "end")][:-1]


Vendor = Anthropic | OpenAI


def module(module_id: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"module": module_id, "source": str(MODULES / module_id), "config": config or {}}


@pytest.fixture(autouse=True, scope="module")
def one_set_of_certificates() -> Iterator[None]:
    """Read the machine's certificates once instead of for every client; no test needs them."""
    context = ssl.create_default_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", lambda *args, **options: context)
        yield


@pytest.fixture
def vendors(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Vendor]]:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as running:
        yield {
            "anthropic": Anthropic(running.enter_context(AnthropicServer())),
            "responses": OpenAI(running.enter_context(OpenAIServer()), "responses"),
            "chat": OpenAI(running.enter_context(OpenAIServer()), "chat"),
        }


async def turn(vendor: Vendor, stored: Messages, number: int) -> tuple[str, Messages]:
    """Go on with a stored conversation in a session of its own; returns the answer, and what is stored now."""
    vendor.script_turn(number)
    plan = {
        "session": {"orchestrator": module("loop-streaming"), "context": module("context-simple")},
        "providers": [vendor.entry],
    }
    blocks = [TextBlock(text="A view."), ImageBlock(source=IMAGE["source"])]
    tool = FunctionTool("look", lambda given: ToolResult(output="A view.", content=blocks), SCHEMA)
    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("tools", tool, name="look")
        context = session.coordinator.get("context")
        await context.set_messages(stored)
        await context.add_message({"role": "user", "content": [{"type": "text", "text": "My garden."}, IMAGE]})
        answer = await session.execute(f"Look around, {number}.")
        messages = await context.get_messages()
    assert [given["place"] for given in tool.inputs] == ["here", "there"]
    return answer, json.loads(json.dumps(messages))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("anthropic", "responses"),
        ("anthropic", "chat"),
        ("responses", "anthropic"),
        ("chat", "anthropic"),
        ("responses", "chat"),
        ("chat", "responses"),
    ],
)
async def test_a_conversation_goes_on_with_another_vendor_and_comes_back(
    vendors: dict[str, Vendor], first: str, second: str
) -> None:
    stored: Messages = []
    answers: list[str] = []
    thoughts: list[list[str]] = []
    for number, name in enumerate((first, second, first, second)):
        answer, stored = await turn(vendors[name], stored, number)
        answers.append(answer)
        thoughts.append(vendors[name].own_thoughts)

    assert [answer.rpartition("Seen, ")[2] for answer in answers] == ["0.", "1.", "2.", "3."]
    one, other = vendors[first], vendors[second]
    assert thoughts == [
        one.expected_thoughts([0]),
        other.expected_thoughts([1]),
        one.expected_thoughts([0, 2]),
        other.expected_thoughts([1, 3]),
    ]
    last = json.dumps(other.requests[-1])
    assert [last.count(f"Seen, {number}.") for number in range(4)] == [1, 1, 1, 0]
    assert last.count("I will look.") == 4
    assert last.count(PICTURE) == 4 + 4 * 2, "of every turn the user's image and those of both results"


async def test_two_vendors_of_one_session_share_its_conversation(vendors: dict[str, Vendor]) -> None:
    one, other = vendors["anthropic"], vendors["responses"]
    one.script_turn(0)
    other.script_turn(1)
    plan = {
        "session": {"orchestrator": module("loop-streaming"), "context": module("context-simple")},
        "providers": [one.entry, other.entry],
    }
    tool = FunctionTool("look", lambda given: ToolResult(output="A view."), SCHEMA)

    async with AmplifierSession(plan) as session:
        coordinator = session.coordinator
        await coordinator.mount("tools", tool, name="look")
        begun = await session.execute("Look around.")
        await coordinator.unmount("providers", "anthropic")
        continued = await session.execute("Once more.")

    assert [answer.rpartition("Seen, ")[2] for answer in (begun, continued)] == ["0.", "1."]
    assert (len(one.requests), len(other.requests)) == (2, 2)
    assert json.dumps(other.requests[-1]).count("A view.") == 4
