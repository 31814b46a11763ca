"""Orchestrators in whole sessions: beside any context, over long turns, and several in one process."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from module_folders import folders_of_type
from turns import MODULES, FunctionTool, answer, calling, echo, texts_of

from amplifier_core import AmplifierSession, HookResult
from amplifier_core.testing import MockProvider

LOOPS = folders_of_type("orchestrator")
CONTEXTS = folders_of_type("context")
ROUNDS = 200


def entry(folder: Path, **config: Any) -> dict[str, Any]:
    return {"module": folder.name, "source": str(folder), "config": config}


def plan_of(loop: Path, context: Path = MODULES / "context-simple", *hooks: dict[str, Any]) -> dict[str, Any]:
    return {"session": {"orchestrator": entry(loop), "context": entry(context)}, "hooks": list(hooks)}


async def equip(session: AmplifierSession, responses: list[Any], *tools: Any) -> MockProvider:
    """Mount a scripted provider and tools."""
    provider = MockProvider(responses)
    await session.coordinator.mount("providers", provider, name="mock")
    for tool in tools:
        await session.coordinator.mount("tools", tool)
    return provider


@pytest.mark.parametrize("loop", LOOPS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("context", CONTEXTS, ids=lambda folder: folder.name)
async def test_any_loop_with_any_context_comes_to_the_same_answer(
    loop: Path, context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    responses = [calling(("c1", "echo", {"n": 1}), ("c2", "missing")), answer("It is one."), answer("You are welcome.")]
    async with AmplifierSession(plan_of(loop, context)) as session:
        await equip(session, responses, echo())

        texts = [await session.execute("What is n?"), await session.execute("Thanks")]

        messages = await session.coordinator.get("context").get_messages()
    assert texts == ["It is one.", "You are welcome."]
    roles = [message["role"] for message in messages if message["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda folder: folder.name)
async def test_a_round_late_in_a_long_turn_takes_no_more_work_than_an_early_one(loop: Path, tmp_path: Path) -> None:
    logging_hook = entry(MODULES / "hooks-logging", output_dir=str(tmp_path))
    redaction_hook = entry(MODULES / "hooks-redaction")
    work, work_at = 0, list[int]()

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal work
        work += 1

    def mark(_: Any) -> str:
        work_at.append(work)
        return "done"

    responses = [*(calling((f"c{number}", "mark")) for number in range(ROUNDS)), answer()]
    plan = plan_of(loop, MODULES / "context-simple", logging_hook, redaction_hook)
    async with AmplifierSession(plan) as session:
        await equip(session, responses, FunctionTool("mark", mark))
        sys.setprofile(count)
        try:
            await session.execute("Go on and on")
        finally:
            sys.setprofile(None)

    early, late = work_at[50] - work_at[0], work_at[-1] - work_at[-51]
    assert len(work_at) == ROUNDS
    assert late <= 2 * early


@pytest.mark.parametrize("loop", LOOPS, ids=lambda folder: folder.name)
async def test_sessions_that_take_turns_keep_what_hooks_add_apart(loop: Path) -> None:
    async def run(name: str) -> list[list[str]]:
        async def note(event: str, data: dict[str, Any]) -> HookResult:
            await asyncio.sleep(0)
            return HookResult(action="inject_context", context_injection=f"for {name}", ephemeral=True)

        async with AmplifierSession(plan_of(loop), session_id=name) as session:
            session.coordinator.hooks.register("tool:post", note)
            provider = await equip(session, [calling((f"{name}1", "echo")), answer(name)], echo())
            assert await session.execute("Hello") == name
        return [texts_of(request) for request in provider.requests]

    requests = await asyncio.gather(*(run(name) for name in ("one", "two", "three")))

    for name, (first, second) in zip(("one", "two", "three"), requests, strict=True):
        assert first == ["Hello"]
        assert [text for text in second if text.startswith("for ")] == [f"for {name}"]


async def test_sessions_that_take_turns_are_steered_apart() -> None:
    async def run(name: str) -> list[str]:
        async with AmplifierSession(plan_of(MODULES / "loop-streaming"), session_id=name) as session:
            steer = session.coordinator.get_capability("session.steer")

            async def steer_late(_: Any) -> str:
                await asyncio.sleep(0)
                steer(f"steer {name}")
                return "steered"

            tool = FunctionTool("steer", steer_late)
            provider = await equip(session, [calling((f"{name}1", "steer")), answer(name)], tool)
            await session.execute("Hello")
        return texts_of(provider.requests[-1])

    one, two = await asyncio.gather(run("one"), run("two"))

    assert (one[-1], two[-1]) == ("steer one", "steer two")
