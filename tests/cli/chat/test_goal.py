"""Working towards a goal."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Started, leaving_nothing

from amplifier_cli.chat.slash_commands import Goal, pursue
from amplifierd.sessions.turn_result import TurnResult


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as found:
        yield found


async def answer(prompt: str) -> TurnResult:
    return TurnResult("done", "completed", session_id="s", turn=1, correlation_id="c")


@pytest.mark.parametrize("leaving", ["", "setsid "], ids=["in its group", "in a group of its own"])
async def test_what_a_check_started_is_gone_when_the_goal_is_given_up(
    tmp_path: Path, started: Started, leaving: str
) -> None:
    check = f"{leaving}sleep 60 & sleep 60; true"
    work = asyncio.create_task(pursue(Goal("a goal", check), tmp_path, answer, lambda line: None))
    await asyncio.to_thread(started.wait_for, 3)

    work.cancel()
    await asyncio.wait([work], timeout=10)
    assert work.cancelled()

    assert started.pids() == []


async def test_the_model_reads_what_a_failed_check_printed(tmp_path: Path) -> None:
    prompts: list[str] = []

    async def note(prompt: str) -> TurnResult:
        prompts.append(prompt)
        return await answer(prompt)

    check = "pwd; echo oh no >&2; exit 3"
    assert not await pursue(Goal("a goal", check, max_turns=2), tmp_path, note, lambda line: None)

    assert f"exited with 3:\n\n{tmp_path}\noh no\n" in prompts[1]
