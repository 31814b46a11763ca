"""A plan that is generated here, in resolved form, runs on our kernel and on the reference kernel alike.

The plan goes from one to the other as JSON. Beside the reference kernel there is nothing of ours: the modules use only
names that its release has, and ten lines map the plan's `file://` sources to folders.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifierd import open_home

PROMPT = "Count the words of: one two three"

MODULES = {
    "loop-plain": """
from amplifier_core import ChatRequest, Message


class PlainLoop:
    def __init__(self, rounds):
        self.rounds = rounds

    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await hooks.emit("prompt:submit", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        provider = next(iter(providers.values()))
        for _ in range(self.rounds):
            messages = [Message(**message) for message in await context.get_messages_for_request()]
            response = await provider.complete(ChatRequest(messages=messages))
            calls = provider.parse_tool_calls(response)
            if not calls:
                return response.content[0].text
            for call in calls:
                result = await tools[call.name].execute(call.arguments)
                await context.add_message({"role": "user", "content": f"{call.name}: {result.output}"})
        return "too many rounds"


async def mount(coordinator, config):
    await coordinator.mount("orchestrator", PlainLoop(config["rounds"]))
""",
    "context-plain": """
class PlainContext:
    def __init__(self, first):
        self.messages = [{"role": "system", "content": first}]

    async def add_message(self, message):
        self.messages.append(message)

    async def get_messages_for_request(self, token_budget=None, provider=None):
        return list(self.messages)

    async def get_messages(self):
        return list(self.messages)

    async def set_messages(self, messages):
        self.messages = list(messages)

    async def clear(self):
        self.messages.clear()


async def mount(coordinator, config):
    await coordinator.mount("context", PlainContext(config["first"]))
""",
    "provider-plain": """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock


class PlainProvider:
    name = "plain"

    def __init__(self, ending):
        self.ending = ending

    def get_info(self):
        return ProviderInfo(id=self.name, display_name="Plain")

    async def list_models(self):
        return []

    def parse_tool_calls(self, response):
        return response.tool_calls or []

    async def complete(self, request, **kwargs):
        last = request.messages[-1].content
        if last.startswith("count: "):
            return ChatResponse(content=[TextBlock(text=last + self.ending)])
        call = ToolCall(id="call_1", name="count", arguments={"text": last.partition(": ")[2]})
        block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
        return ChatResponse(content=[block], tool_calls=[call])


async def mount(coordinator, config):
    await coordinator.mount("providers", PlainProvider(config["ending"]), name="plain")
""",
    "tool-plain": """
from amplifier_core import ToolResult


class CountTool:
    name = "count"
    description = "Count words."
    input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}

    async def execute(self, input):
        return ToolResult(success=True, output=len(input["text"].split()))


async def mount(coordinator, config):
    await coordinator.mount("tools", CountTool(), name="count")
""",
    "hooks-plain": """
from amplifier_core import HookResult

heard = []


async def observe(event, data):
    heard.append(event)
    return HookResult(action="continue")


async def mount(coordinator, config):
    coordinator.register_capability("plain.heard", heard)
    return coordinator.hooks.register("prompt:submit", observe, priority=10, name="plain")
""",
}

PROFILE = """---
profile:
  name: plain
  version: 1.0.0
  schema_version: 2
session:
  orchestrator: {module: loop-plain, source: ../modules/loop-plain, config: {rounds: 3}}
  context: {module: context-plain, source: ../modules/context-plain, config: {first: You count words.}}
  injection_budget_per_turn: 500
providers:
- {module: provider-plain, source: ../modules/provider-plain, config: {ending: " words"}}
tools:
- {module: tool-plain, source: ../modules/tool-plain}
hooks:
- {module: hooks-plain, source: ../modules/hooks-plain}
agents:
  counter: ../agents/counter.md
---
You count words.
"""

# Runs a plan in a process of its own: `python -I -c RUN [resolver] < plan.json`.
RUN = """
import asyncio, importlib.util, json, sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from amplifier_core import AmplifierSession


class Source:
    def __init__(self, url):
        self.path = Path(unquote(urlsplit(url).path))

    def resolve(self):
        return self.path


class Resolver:
    def resolve(self, module_id, source_hint=None, profile_hint=None, **kwargs):
        return Source(source_hint or profile_hint)


async def main():
    session = AmplifierSession(json.load(sys.stdin))
    coordinator = session.coordinator
    if "resolver" in sys.argv:
        await coordinator.mount("module-source-resolver", Resolver())
    await session.initialize()
    answer = await session.execute(sys.argv[1])
    seen = {
        "answer": answer,
        "orchestrator": type(coordinator.get("orchestrator")).__name__,
        "rounds": coordinator.get("orchestrator").rounds,
        "providers": sorted(coordinator.get("providers")),
        "tools": sorted(coordinator.get("tools")),
        "heard": coordinator.get_capability("plain.heard"),
        "messages": await coordinator.get("context").get_messages(),
        "agents": session.config["agents"],
        "budget": session.config["session"]["injection_budget_per_turn"],
    }
    await session.cleanup()
    ours = ("amplifier_foundation", "amplifier_kit", "amplifier_system", "amplifierd", "amplifier_module_loop_basic")
    seen["ours"] = [name for name in ours if importlib.util.find_spec(name)]
    return seen


sys.stdout.write(json.dumps(asyncio.run(main())) + "\\n")
sys.stdout.flush()  # the reference kernel may crash while its interpreter ends
"""


def run(python: str, plan: dict[str, Any], *options: str) -> dict[str, Any]:
    command = [python, "-I", "-B", "-c", RUN, PROMPT, *options]
    done = subprocess.run(command, input=json.dumps(plan), capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.endswith("}\n"), done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.fixture
async def plan(tmp_path: Path) -> dict[str, Any]:
    """The resolved plan of a profile whose five modules are folders of its collection."""
    collection = tmp_path / "a collection"
    for module_id, code in MODULES.items():
        package = collection / "modules" / module_id / f"amplifier_module_{module_id.replace('-', '_')}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(code)
    (collection / "profiles").mkdir()
    (collection / "profiles/plain.md").write_text(PROFILE)
    (collection / "agents").mkdir()
    (collection / "agents/counter.md").write_text("You count.")
    home = open_home(tmp_path / "a home", offline=True)
    await home.collections.add("team", str(collection))
    return await home.plans.generate("team/plain", form="resolved")


@pytest.fixture
def peer() -> str:
    python = os.environ.get("AMPLIFIER_PEER_PYTHON")
    if python is None:
        pytest.fail("AMPLIFIER_PEER_PYTHON names no interpreter with the reference kernel; run: make compat")
    return python


def test_the_plan_is_resolved_and_survives_json(plan: dict[str, Any]) -> None:
    assert plan["session"]["orchestrator"] == "loop-plain"
    assert plan["session"]["orchestrator_source"].startswith("file:///")
    assert json.loads(json.dumps(plan)) == plan


@pytest.mark.parametrize("options", [[], ["resolver"]], ids=["the kernel alone", "with a resolver"])
def test_the_plan_runs_on_our_kernel(plan: dict[str, Any], options: list[str]) -> None:
    seen = run(sys.executable, plan, *options)

    assert seen["answer"] == "count: 3 words"
    assert "amplifierd" in seen["ours"]


def test_the_plan_runs_on_the_reference_kernel_without_anything_of_ours(plan: dict[str, Any], peer: str) -> None:
    seen = run(peer, plan, "resolver")

    assert seen["answer"] == "count: 3 words"
    assert seen["ours"] == []


def test_both_kernels_mount_the_same_modules_with_the_same_configuration(plan: dict[str, Any], peer: str) -> None:
    ours, theirs = run(sys.executable, plan, "resolver"), run(peer, plan, "resolver")

    del ours["ours"], theirs["ours"]
    assert ours == theirs
    assert (ours["orchestrator"], ours["rounds"], ours["providers"], ours["tools"]) == (
        "PlainLoop",
        3,
        ["plain"],
        ["count"],
    )
    assert ours["messages"][0] == {"role": "system", "content": "You count words."}
    assert ours["heard"] == ["prompt:submit"]
    assert ours["agents"]["counter"]["content"] == "You count."
