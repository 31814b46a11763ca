"""Older parts of a conversation that a person had left out stay out, also when the session goes on later."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call, open_home
from waiting_tool import WaitingTool

from amplifierd.exceptions import ExecutionInProgressError
from amplifierd.home import Home

LONG = " ".join(["word"] * 800)


def talking(context: str = "context-simple") -> dict[str, Any]:
    sections = Agent([*(f"{number} {LONG}" for number in range(6)), "Short."]).sections()
    sections["session"]["context"] = {"module": context}
    return sections


def last_tokens(home: Home, session_id: str) -> int:
    return home.sessions.requests(session_id)[-1].tokens


@pytest.mark.parametrize("context", ["context-simple", "context-persistent"])
async def test_what_was_left_out_stays_out_after_the_session_is_resumed(
    tmp_path: Path, work: Path, context: str
) -> None:
    home = open_home(tmp_path)
    async with home.sessions.open(plan=talking(context), working_dir=work) as session:
        for _ in range(6):
            await session.execute("Go on")
        compacted = await session.compact()
        kept = len(await session.messages())
    before, after = compacted.tokens
    assert after < before
    await home.sessions.close()

    again = open_home(tmp_path)
    async with again.sessions.resume(session.session_id) as resumed:
        await resumed.execute("And now?")

        assert len(await resumed.messages()) == kept + 2
    assert last_tokens(again, session.session_id) < (before + after) // 2
    await again.sessions.close()


async def test_what_was_taken_back_is_not_left_out(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=talking(), working_dir=work) as session:
        for _ in range(6):
            await session.execute("Go on")
        await session.compact()

    await home.sessions.truncate(session.session_id, 2)

    async with home.sessions.resume(session.session_id) as resumed:
        await resumed.execute("And now?")
    said = home.sessions.request(session.session_id, home.sessions.requests(session.session_id)[-1].request_id)
    assert sum(LONG in str(part.message) for part in said.parts) == 2


async def test_a_running_turn_is_not_compacted(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent([call("wait_here"), "Done."]).sections(), working_dir=work) as session:
        tool = await WaitingTool().mount(session)
        turn = asyncio.create_task(session.execute("Wait"))
        await tool.is_running.wait()

        with pytest.raises(ExecutionInProgressError):
            await session.compact()

        tool.go.set()
        assert (await turn).status == "completed"
