"""What is in a conversation, whoever put it there, is what the model sees after a restart as well."""

from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, Kind, call

from amplifier_core import HookResult
from amplifierd.exceptions import InvalidMessageError
from amplifierd.home import Home
from amplifierd.sessions.session import Session

ECHO = {"text": "Heard.", "repeat": True}
HELPER = {
    "instruction": "You are the helper.",
    "providers": [{"module": "provider-mock", "config": {"script": [ECHO]}}],
}


def last_request(home: Home, session_id: str) -> str:
    """Return what the model was sent last, as text."""
    request = home.sessions.requests(session_id)[-1]
    return str([part.message for part in home.sessions.request(session_id, request.request_id).parts])


def rewording(session: Session) -> None:
    """Let a hook change every prompt."""

    async def politely(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={**data, "prompt": f"Kindly: {data['prompt'].lower()}"})

    session.runner.kernel.session.coordinator.hooks.register("prompt:submit", politely, name="politely")


@pytest.mark.parametrize("how", ["resume", "fork", "truncate"])
async def test_a_prompt_that_a_hook_changed_stays_changed(home: Home, work: Path, how: str) -> None:
    async with home.sessions.open(plan=Agent([ECHO]).sections(), working_dir=work) as session:
        rewording(session)
        await session.execute("GO")
        await session.execute("STOP")
        session_id = session.session_id
    if how == "fork":
        session_id = (await home.sessions.fork(session_id, 1)).session_id
    elif how == "truncate":
        await home.sessions.truncate(session_id, 1)

    async with home.sessions.resume(session_id) as session:
        await session.execute("Go on")

    sent = last_request(home, session_id)
    assert "Kindly: go" in sent
    assert "'GO'" not in sent
    assert ("Kindly: stop" in sent) is (how == "resume")
    assert home.sessions.messages(session_id)[0]["content"] == "GO"  # as it was typed


@pytest.mark.parametrize("is_open", [True, False])
async def test_messages_can_be_added_beside_the_turns(home: Home, work: Path, is_open: bool) -> None:
    session = await home.sessions.open(plan=Agent([ECHO]).sections(), working_dir=work)
    await session.execute("Hello")
    if not is_open:
        await session.close()

    added = await home.sessions.append_message(session.session_id, "assistant", "As I said.", token_count=3)
    await home.sessions.append_message(session.session_id, "user", [{"type": "text", "text": "By the way."}])

    assert (added["role"], added["token_count"], added["turn"]) == ("assistant", 3, 1)
    assert home.sessions.get(session.session_id).message_count == 4
    await session.close()
    async with home.sessions.resume(session.session_id) as again:
        await again.execute("Go on")
    sent = last_request(home, session.session_id)
    assert "As I said." in sent
    assert "By the way." in sent


@pytest.mark.parametrize(
    ("role", "content"),
    [("tool", "42"), ("king", "Hear"), ("", "x"), ("user", ""), ("user", None), ("user", [1]), ("user", {"a": 1})],
)
async def test_what_no_conversation_can_have_is_refused(home: Home, work: Path, role: str, content: Any) -> None:
    async with home.sessions.open(plan=Agent().sections(), working_dir=work) as session:
        with pytest.raises(InvalidMessageError):
            await session.append_message(role, content)

        assert await session.messages() == []


@pytest.mark.parametrize("how", ["resume", "fork"])
async def test_an_agents_session_goes_on_as_that_agent(
    home: Home, work: Path, tmp_path: Path, kind: Kind, how: str
) -> None:
    agent = Agent([call("task", agent="helper", instruction="Help"), "Done."], [{"module": "tool-task"}])
    agent.agents, agent.instruction = {"helper": HELPER}, "You are the root."
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("Ask the helper")
    (child,) = home.sessions.children(session.session_id)
    session_id = child.session_id if how == "resume" else (await home.sessions.fork(child.session_id)).session_id

    async with home.sessions.resume(session_id) as alone:
        await alone.execute("Go on")

    sent = last_request(home, session_id)
    assert "You are the helper." in sent
    assert "You are the root." not in sent
