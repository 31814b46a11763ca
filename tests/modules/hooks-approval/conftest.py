"""The guard mounted on a coordinator of its own, with providers that answer from a script."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount

from amplifier_core import HookResult
from amplifier_core.interfaces import ApprovalRequest
from amplifier_core.testing import EventRecorder, MockCoordinator


class ScriptedProvider:
    """Answers with what it is given, one after the other, the last one for ever; exceptions are raised."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.requests: list[ApprovalRequest] = []
        self.is_asked = asyncio.Event()

    async def request_approval(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        self.is_asked.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return await answer() if callable(answer) else answer


class Guard:
    """The mounted module, the events it emitted and the audit lines it wrote."""

    def __init__(self, coordinator: MockCoordinator, cleanup: Callable[[], None], audit_file: Path) -> None:
        self.coordinator, self.cleanup, self.audit_file = coordinator, cleanup, audit_file
        self.recorder = EventRecorder()
        for event in ("approval:required", "approval:granted", "approval:denied"):
            coordinator.hooks.register(event, self.recorder.record, name="recorder")

    def answered_by(self, *answers: Any) -> ScriptedProvider:
        """Register a provider that gives these answers."""
        provider = ScriptedProvider(*answers)
        self.coordinator.get_capability("approval.register_provider")(provider)
        return provider

    async def judge(self, tool_name: str, tool_input: Any = None, **data: Any) -> HookResult:
        """Announce a tool call and return what becomes of it."""
        payload = {"tool_name": tool_name, "tool_call_id": "call-1", "tool_input": tool_input or {}, **data}
        return await self.coordinator.hooks.emit("tool:pre", payload)

    async def judge_command(self, command: Any) -> HookResult:
        return await self.judge("bash", {"command": command})

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.recorder.events]

    @property
    def audit(self) -> list[dict[str, Any]]:
        if not self.audit_file.exists():
            return []
        return [json.loads(line) for line in self.audit_file.read_text(encoding="utf-8").splitlines()]


MountGuard = Callable[..., Awaitable[Guard]]


@pytest.fixture
def mount_guard(tmp_path: Path) -> MountGuard:
    """Mounts the module; `audit` extends the setting that keeps the audit file inside of the test's folder."""

    async def mount_one(audit: dict[str, Any] | None = None, **config: Any) -> Guard:
        coordinator = MockCoordinator()
        file = tmp_path / "audit/approvals.jsonl"
        cleanup = await mount(coordinator, {"audit": {"file": str(file), **(audit or {})}, **config})
        return Guard(coordinator, cleanup, file)

    return mount_one
