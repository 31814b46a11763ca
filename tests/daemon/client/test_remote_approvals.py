"""Questions of a session in a daemon, put to an approver here."""

import asyncio
import os
import signal
from pathlib import Path

from real_server import plan, real_server

from amplifierd.client.daemon_client import DaemonClient
from amplifierd.client.remote_session import RemoteSession
from amplifierd.sessions.questions.approval import Approval, ApprovalDecision

PATIENCE_S = 30.0
WRITING = {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "made.txt", "content": "made"}}]}
GUARD = {"module": "hooks-approval", "config": {"ask_user_fallback": True}}


class Undecided:
    """Is asked, and never answers."""

    def __init__(self) -> None:
        self.is_asked, self.is_withdrawn = asyncio.Event(), asyncio.Event()

    async def decide(self, approval: Approval) -> ApprovalDecision:
        self.is_asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.is_withdrawn.set()


async def test_a_question_is_withdrawn_when_the_process_that_asked_it_was_killed(tmp_path: Path) -> None:
    approver = Undecided()
    with real_server(tmp_path / "home") as served:
        async with DaemonClient(served.url, served.token) as client, asyncio.timeout(PATIENCE_S):
            body = {"mount_plan": plan(WRITING, tools=True, hooks=[GUARD]), "working_dir": str(tmp_path)}
            async with await RemoteSession.create(client, body, approver) as session:
                turn = asyncio.create_task(session.execute("Write"))
                await approver.is_asked.wait()
                for worker in (await client.get("/workers"))["workers"]:
                    os.kill(worker["pid"], signal.SIGKILL)

                assert (await turn).status == "failed"
                await approver.is_withdrawn.wait()
