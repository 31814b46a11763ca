"""Tools called without a model: everything between the model and the tool is as always."""

from pathlib import Path
from typing import Any

import pytest

import amplifierd
from amplifierd.exceptions import ExecutionError, SessionNotFoundError
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import ALLOW, Approval, ApprovalDecision
from amplifierd.sessions.tool_session import open_tools


def plan(*hooks: dict[str, Any], orchestrator: str = "loop-streaming") -> dict[str, Any]:
    return {
        "session": {"orchestrator": {"module": orchestrator}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock"}],
        "tools": [{"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"sandbox": "off"}}],
        "hooks": [*hooks],
    }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "work").mkdir()
    return amplifierd.open_home(tmp_path / "home", offline=True)


@pytest.mark.parametrize("orchestrator", ["loop-basic", "loop-streaming", "loop-events"])
async def test_every_loop_makes_the_call_and_no_model_is_asked(home: Home, tmp_path: Path, orchestrator: str) -> None:
    request = {"plan": plan(orchestrator=orchestrator), "working_dir": tmp_path / "work"}
    async with open_tools(home.sessions, **request) as opened:
        outcome = await opened.invoke("bash", {"command": "echo hello"})

    assert (outcome.ran, outcome.success, outcome.output["stdout"]) == (True, True, "hello\n")
    record = home.sessions.get(outcome.session_id)
    assert (record.status, record.turn_count, (record.token_usage or {}).get("total_tokens", 0)) == ("completed", 1, 0)
    await home.sessions.close()


class Yes:
    def __init__(self) -> None:
        self.asked: list[Approval] = []

    async def decide(self, approval: Approval) -> ApprovalDecision:
        self.asked.append(approval)
        return ApprovalDecision(ALLOW)


async def test_a_guard_asks_the_approver_and_without_one_the_call_does_not_run(home: Home, tmp_path: Path) -> None:
    guarded = plan({"module": "hooks-approval", "config": {"ask_user_fallback": True}})
    request = {"plan": guarded, "working_dir": tmp_path / "work"}
    yes = Yes()

    async with open_tools(home.sessions, **request) as opened:
        refused = await opened.invoke("bash", {"command": "touch made"})
    async with open_tools(home.sessions, approver=yes, **request) as opened:
        allowed = await opened.invoke("bash", {"command": "touch made"})

    assert (refused.ran, refused.success, allowed.ran, len(yes.asked)) == (False, False, True, 1)
    assert (tmp_path / "work/made").exists()
    await home.sessions.close()


async def test_looking_at_tools_leaves_nothing_behind(home: Home, tmp_path: Path) -> None:
    async with open_tools(home.sessions, keep=False, plan=plan(), working_dir=tmp_path / "work") as opened:
        names = [tool.name for tool in opened.tools()]
        session_id = opened.session.session_id

    assert {"bash", "read_file"} <= {*names}
    with pytest.raises(SessionNotFoundError):
        home.sessions.get(session_id)
    await home.sessions.close()


async def test_a_tool_that_is_not_there_is_named_and_leaves_no_session(home: Home, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="there is no tool 'fly'") as raised:
        async with open_tools(home.sessions, plan=plan(), working_dir=tmp_path / "work") as opened:
            await opened.invoke("fly", {})

    assert "bash" in raised.value.hint
    assert home.sessions.list().sessions == ()
    await home.sessions.close()


async def test_a_session_that_cannot_start_leaves_nothing(home: Home, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="loop-nowhere"):
        async with open_tools(home.sessions, plan=plan(orchestrator="loop-nowhere"), working_dir=tmp_path / "work"):
            pass

    assert home.sessions.list().sessions == ()
    await home.sessions.close()
