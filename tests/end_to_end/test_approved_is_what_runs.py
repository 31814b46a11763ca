"""Whatever hooks do to a call, what runs is what was approved, or nothing runs."""

import asyncio
import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ChatResponse, HookResult, TextBlock, ToolCall
from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.testing import MockProvider, MockTool

LOOPS = ["loop-basic", "loop-streaming", "loop-events"]
ROUNDS = 60
CALLS = 3


class Person:
    """Answers the gate and the questions of hooks, keeps what was shown, and changes it behind the back of the loop."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.shown: list[Any] = []
        self.prompts: list[str] = []

    async def request_approval(self, *question: Any, **more: Any) -> Any:
        await asyncio.sleep(0)
        says_yes = self._chance.random() < 0.8
        if question and isinstance(question[0], ApprovalRequest):
            if says_yes:
                self.shown.append(copy.deepcopy(question[0].details))
            if self._chance.random() < 0.3:
                question[0].details["command"] = "swapped by the provider"
            return ApprovalResponse(approved=says_yes, reason="asked", remember=False)
        prompt = more.get("prompt", question[0] if question else "")
        if says_yes:
            self.prompts.append(prompt)
        return "Allow once" if says_yes else "Deny"


def random_hook(chance: random.Random, kept: list[dict[str, Any]]) -> Any:  # noqa: C901 - a list of deeds
    """Return a handler of `tool:pre` that does one of the things hooks do."""
    deed = chance.choice(["observe", "modify", "mutate", "ask", "deny", "raise", "wait", "keep", "inject", "both"])
    number = chance.randrange(10_000)

    async def handler(event: str, data: dict[str, Any]) -> HookResult | None:
        given = data["tool_input"]
        if deed in ("modify", "both"):
            changed = {**data, "tool_input": {"command": f"modified {number}"}}
            if deed == "both":
                return HookResult(action="ask_user", approval_prompt=f"Run {given}?", data=changed)
            return HookResult(action="modify", data=changed)
        if deed == "mutate":
            given["command"] = f"mutated {number}"
        elif deed == "ask":
            return HookResult(action="ask_user", approval_prompt=f"Run {json.dumps(given)}?")
        elif deed == "deny":
            return HookResult(action="deny", reason="no")
        elif deed == "raise":
            raise RuntimeError("broken hook")
        elif deed == "wait":
            await asyncio.sleep(0.001)
        elif deed == "keep":
            kept.append(given)
        elif deed == "inject":
            return HookResult(action="inject_context", context_injection="note")
        return None

    return handler


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_runs_is_what_was_approved_or_nothing_runs(loop: str, tmp_path: Path) -> None:
    chance = random.Random(f"{loop} 1")
    runs = 0
    for _ in range(ROUNDS):
        person, kept, ran = Person(chance), list[dict[str, Any]](), list[dict[str, Any]]()
        plan = {
            "session": {"orchestrator": {"module": loop}, "context": {"module": "context-simple"}},
            "hooks": [{"module": "hooks-approval", "config": {"rules": [], "audit": {"enabled": False}}}],
        }
        session = AmplifierSession(plan, approval_system=person)
        await session.initialize()
        coordinator = session.coordinator
        coordinator.get_capability("approval.register_provider")(person)
        for _ in range(chance.randrange(4)):
            priority = chance.choice([-100, 0, 50, 2_000_000])
            coordinator.hooks.register("tool:pre", random_hook(chance, kept), priority=priority)

        async def tamper(kept: list[dict[str, Any]] = kept) -> None:
            while True:
                for given in kept:
                    given["command"] = "changed in the background"
                await asyncio.sleep(0)

        async def execute(given: dict[str, Any], ran: list[dict[str, Any]] = ran) -> str:
            ran.append(copy.deepcopy(given))
            return "done"

        bash = MockTool("bash")
        bash.execute = execute
        originals = [{"command": f"make {number}"} for number in range(CALLS)]
        calls = [ToolCall(id=f"c{n}", name="bash", arguments=given) for n, given in enumerate(originals)]
        await coordinator.mount("tools", bash)
        answers = [ChatResponse(content=[TextBlock(text="")], tool_calls=calls), "finished"]
        await coordinator.mount("providers", MockProvider(answers), name="mock")
        tampering = asyncio.create_task(tamper())
        try:
            async with asyncio.timeout(30):
                await session.execute("go")
        finally:
            tampering.cancel()
            await session.cleanup()
        for given in ran:
            shown = {key: value for key, value in given.items() if not key.startswith("_")}
            assert shown in person.shown, f"{given} ran, and nobody said yes to it"
            was_asked = [prompt for prompt in person.prompts if json.dumps(shown) in prompt]
            assert not person.prompts or was_asked or shown in originals
        runs += len(ran)

    assert runs > ROUNDS // 4, "hooks that stop everything prove nothing"


async def test_a_tool_by_another_name_is_asked_about_all_the_same() -> None:
    plan = {
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "hooks": [{"module": "hooks-approval", "config": {"audit": {"enabled": False}}}],
    }
    session = AmplifierSession(plan)
    await session.initialize()
    ran: list[str] = []
    tools = {
        "note_taker": MockTool("write_file"),
        "helper": MockTool("bash"),
        "mystery": MockTool("mystery"),
        "declared": MockTool("declared"),
        "described": MockTool("get_weather"),
    }
    tools["declared"].effects = frozenset({"read"})
    tools["described"].get_metadata = lambda: {"requires_approval": True}
    for name, tool in tools.items():

        async def execute(given: dict[str, Any], name: str = name) -> str:
            ran.append(name)
            return "done"

        tool.execute = execute
        await session.coordinator.mount("tools", tool, name=name)
    calls = [ToolCall(id=name, name=name, arguments={"command": "x", "file_path": "x"}) for name in tools]
    answers = [ChatResponse(content=[TextBlock(text="")], tool_calls=calls), "finished"]
    await session.coordinator.mount("providers", MockProvider(answers), name="mock")

    await session.execute("go")
    await session.cleanup()

    assert ran == ["declared"]
