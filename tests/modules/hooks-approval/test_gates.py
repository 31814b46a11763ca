"""Several gates: whoever asks which of them, no call passes a guard unseen."""

from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount

from amplifier_core.interfaces import ApprovalResponse
from amplifier_core.testing import MockCoordinator
from amplifier_kit.approval import deferring

from .conftest import Guard, MountGuard

YES, NO = ApprovalResponse(approved=True), ApprovalResponse(approved=False, reason="not here")


async def guard_inside(outer: Guard) -> Guard:
    """Mount a guard in a session that has inherited the gate of another."""
    coordinator = MockCoordinator()
    coordinator.register_capability("approval.gate", outer.coordinator.get_capability("approval.gate"))
    cleanup = await mount(coordinator, {"audit": {"enabled": False}})
    return Guard(coordinator, cleanup, outer.audit_file)


@pytest.mark.parametrize(("answer", "action"), [(YES, "continue"), (NO, "deny")])
async def test_a_loop_that_knows_no_gate_asks_the_outer_session_too(
    mount_guard: MountGuard, answer: ApprovalResponse, action: str
) -> None:
    outer = await mount_guard()
    provider = outer.answered_by(answer)
    inner = await guard_inside(outer)

    verdict = await inner.judge_command("make install")

    assert verdict.action == action
    assert [request.action for request in provider.requests] == ["Execute: make install"]


async def test_an_outer_gate_that_fails_denies(mount_guard: MountGuard) -> None:
    outer = await mount_guard()

    async def broken(*_: Any) -> None:
        raise RuntimeError("gone")

    outer.coordinator.register_capability("approval.gate", broken)
    inner = await guard_inside(outer)

    assert (await inner.judge_command("make install")).action == "deny"


async def test_a_guard_whose_gate_was_replaced_decides_itself(mount_guard: MountGuard) -> None:
    guard = await mount_guard()
    guard.answered_by(NO)
    other: Callable[..., Any] = (await mount_guard()).coordinator.get_capability("approval.gate")

    with deferring(other):
        assert (await guard.judge_command("make install")).action == "deny"


async def test_a_guard_whose_own_gate_is_asked_afterwards_does_not_ask_before(mount_guard: MountGuard) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(NO)

    with deferring(guard.coordinator.get_capability("approval.gate")):
        assert (await guard.judge_command("make install")).action == "continue"
    assert provider.requests == []
