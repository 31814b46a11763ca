"""A guard mounts whatever its configuration says, and takes the safe value for what it cannot use."""

import asyncio
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount

from amplifier_core.interfaces import ApprovalResponse
from amplifier_core.testing import MockCoordinator

YES = ApprovalResponse(approved=True)

MISTAKES = {
    "rules": ("ls *", {"pattern": "ls *"}, 7),
    "default_action": ("maybe", "CONTINUE", True, ["continue"]),
    "default_timeout": (-1, 0, "soon", True, float("nan"), float("inf"), 10**400),
    "audit": ("audit.jsonl", ["x"], 7),
    "policy_driven_only": ("perhaps", 1, []),
    "tools": (["bash"], "bash"),
    "patterns": ([7], {"a": 1}),
    "auto_approve": ("perhaps", 1, "yes"),
    "high_risk_tools": ([None], 7),
    "remember": ("perhaps", 0),
    "ask_user_fallback": ("perhaps", 1),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in MISTAKES.items() for value in values])
async def test_a_value_that_does_not_fit_is_an_error_in_the_log_and_the_guard_stays(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str, value: Any
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    coordinator = MockCoordinator()

    await mount(coordinator, {key: value})

    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert all(part in errors[0] for part in ("hooks-approval", repr(key), repr(value), "allowed: "))
    verdict = await coordinator.hooks.emit("tool:pre", {"tool_name": "bash", "tool_input": {"command": "make"}})
    assert verdict.action == "deny"


@pytest.mark.parametrize("config", [None, {}, [], 7, "auto_approve", ["auto_approve"]])
async def test_the_guard_mounts_with_any_configuration_at_all(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, config: Any
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    coordinator = MockCoordinator()

    await mount(coordinator, config)

    verdict = await coordinator.hooks.emit("tool:pre", {"tool_name": "bash", "tool_input": {"command": "make"}})
    assert verdict.action == "deny"


async def test_a_time_out_of_minus_one_is_none(mount_guard: Any) -> None:
    guard = await mount_guard(default_timeout=-1)
    provider = guard.answered_by(YES)

    assert (await guard.judge_command("make")).action == "continue"
    assert provider.requests[0].timeout is None


async def test_an_unknown_default_action_is_deny(mount_guard: Any) -> None:
    guard = await mount_guard(default_action="maybe", default_timeout=0.05)
    guard.answered_by(asyncio.Event().wait)

    assert (await guard.judge_command("make")).action == "deny"


async def test_rules_that_are_no_list_approve_nothing(mount_guard: Any) -> None:
    guard = await mount_guard(rules="ls *")

    assert (await guard.judge_command("ls")).action == "deny"


async def test_rules_replace_the_default_ones_and_broken_ones_are_skipped(mount_guard: Any) -> None:
    guard = await mount_guard(rules=["ls", {"pattern": "date", "action": "auto_approve"}])

    assert (await guard.judge_command("date")).action == "continue"
    assert (await guard.judge_command("ls")).action == "deny"


@pytest.mark.parametrize("entry", [True, "yes", None, [], {"require_approval": "perhaps"}])
async def test_an_entry_about_a_tool_that_cannot_be_understood_demands_approval(mount_guard: Any, entry: Any) -> None:
    guard = await mount_guard(tools={"deploy": entry})

    assert (await guard.judge("deploy")).action == "deny"


async def test_broken_settings_of_the_audit_file_are_its_defaults(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    coordinator = MockCoordinator()

    await mount(coordinator, {"audit": {"enabled": "perhaps", "file": 7, "required": []}})
    await coordinator.hooks.emit("tool:pre", {"tool_name": "bash", "tool_input": {"command": "ls"}})

    assert (tmp_path / ".amplifier/audit/approvals.jsonl").is_file()


@pytest.mark.parametrize("text", ["true", " True "])
async def test_booleans_may_be_text(mount_guard: Any, text: str) -> None:
    guard = await mount_guard(auto_approve=text)

    assert (await guard.judge_command("make")).action == "continue"


async def test_misspelt_keys_are_named_in_one_warning(mount_guard: Any, caplog: pytest.LogCaptureFixture) -> None:
    await mount_guard(auto_aprove=True, rule=[])

    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["hooks-approval: unknown config keys are ignored: auto_aprove, rule"]


async def test_enabled_events_cannot_blind_the_guard(mount_guard: Any, caplog: pytest.LogCaptureFixture) -> None:
    guard = await mount_guard(enabled_events=["session:*"])

    assert (await guard.judge_command("make")).action == "deny"
    assert any("enabled_events" in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


async def test_the_configuration_is_left_as_it_was() -> None:
    config = {"tools": {"deploy": {"require_approval": True}}, "rules": [{"pattern": "a", "action": "auto_deny"}]}
    before = repr(config)

    await mount(MockCoordinator(), config)

    assert repr(config) == before
