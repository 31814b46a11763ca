"""The audit file: one line for every decision."""

import json
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_approval.config import audit_log

from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse

YES = ApprovalResponse(approved=True)
REQUEST = ApprovalRequest(tool_name="bash", action="Execute: ls", details={"command": "ls"}, risk_level="high")


def unwritable(kind: str, folder: Path) -> Path:
    match kind:
        case "the parent is a file":
            (folder / "file").touch()
            return folder / "file/approvals.jsonl"
        case "it is a directory":
            (folder / "directory").mkdir()
            return folder / "directory"
        case "the disk is full":
            return Path("/dev/full")
        case _:
            return folder / "not\0allowed"


UNWRITABLE = [
    "the parent is a file",
    "it is a directory",
    "the name is invalid",
    pytest.param("the disk is full", marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")),
]


async def test_every_decision_is_one_line_that_says_who_took_it(mount_guard: Any) -> None:
    guard = await mount_guard(rules=[{"pattern": "ls", "action": "auto_approve"}], default_timeout=30)
    guard.answered_by(ApprovalResponse(approved=True, reason="ok", remember=True), RuntimeError("broken"))

    for command in ("ls", "make", "make", "cargo build"):
        await guard.judge_command(command)

    assert [(line["source"], line["response"]) for line in guard.audit] == [
        ("rule", {"approved": True, "reason": "Auto-approved by rule", "remember": False}),
        ("provider", {"approved": True, "reason": "ok", "remember": True}),
        ("remembered", {"approved": True, "reason": "ok", "remember": True}),
        ("error", {"approved": False, "reason": "Approval system error: broken", "remember": False}),
    ]
    line = guard.audit[1]
    assert list(line) == ["timestamp", "session_id", "tool_call_id", "source", "request", "response"]
    assert datetime.fromisoformat(line["timestamp"]).utcoffset().total_seconds() == 0
    assert (line["session_id"], line["tool_call_id"]) == ("test-session", "call-1")
    assert line["request"] == {
        "tool_name": "bash",
        "action": "Execute: make",
        "risk_level": "high",
        "details": {"command": "make"},
        "timeout": 30.0,
    }


async def test_a_grant_by_configuration_says_so(mount_guard: Any) -> None:
    guard = await mount_guard(auto_approve=True)

    await guard.judge_command("make")

    assert guard.audit[0]["source"] == "config"


async def test_the_file_is_private_and_its_directory_is_made(mount_guard: Any) -> None:
    guard = await mount_guard()

    await guard.judge_command("ls")

    assert stat.S_IMODE(guard.audit_file.stat().st_mode) == 0o600


async def test_nothing_is_written_when_it_is_switched_off(mount_guard: Any) -> None:
    guard = await mount_guard(audit={"enabled": False})

    assert (await guard.judge_command("ls")).action == "continue"
    assert not guard.audit_file.parent.exists()


async def test_what_is_required_cannot_be_switched_off(mount_guard: Any) -> None:
    guard = await mount_guard(audit={"enabled": False, "required": True})

    await guard.judge_command("ls")

    assert len(guard.audit) == 1


@pytest.mark.parametrize("kind", UNWRITABLE)
async def test_an_audit_file_that_cannot_be_written_leaves_decisions_as_they_are(
    mount_guard: Any, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = await mount_guard(audit={"file": str(unwritable(kind, tmp_path))})

    assert (await guard.judge_command("ls")).action == "continue"
    assert (await guard.judge_command("make")).reason == "No approval provider available"
    assert [record.levelname for record in caplog.records].count("ERROR") == 2


@pytest.mark.parametrize("kind", UNWRITABLE)
@pytest.mark.parametrize("command", ["ls", "make"], ids=["by rule", "by a person"])
async def test_an_approval_that_must_be_audited_and_cannot_be_is_a_denial(
    mount_guard: Any, tmp_path: Path, kind: str, command: str
) -> None:
    guard = await mount_guard(audit={"file": str(unwritable(kind, tmp_path)), "required": True})
    guard.answered_by(YES)

    verdict = await guard.judge_command(command)

    assert verdict.action == "deny"
    assert "audit" in verdict.reason
    assert guard.events == ["approval:required", "approval:denied"]


async def test_secrets_are_masked_where_redaction_is_mounted(mount_guard: Any) -> None:
    guard = await mount_guard()

    def scrub(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("hunter2", "[REDACTED]"))

    guard.coordinator.register_capability("redaction.scrub", scrub)
    await guard.judge_command("login hunter2")

    assert guard.audit[0]["request"]["details"] == {"command": "login [REDACTED]"}
    assert "hunter2" not in guard.audit_file.read_text()


async def test_details_that_cannot_be_masked_are_left_out(mount_guard: Any) -> None:
    guard = await mount_guard(auto_approve=True)
    guard.coordinator.register_capability("redaction.scrub", lambda value: 1 / 0)

    assert (await guard.judge_command("login hunter2")).action == "continue"
    assert guard.audit[0]["request"]["details"] == {}
    assert "hunter2" not in guard.audit_file.read_text()


async def test_a_scrubber_that_fails_leaves_nothing_of_the_call_in_the_log(
    mount_guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    guard = await mount_guard(auto_approve=True)

    def scrub(value: Any) -> Any:
        raise ValueError(f"cannot mask {value}")

    guard.coordinator.register_capability("redaction.scrub", scrub)

    await guard.judge_command("curl -H secret-token")

    assert "could not be scrubbed (ValueError)" in caplog.text
    assert "secret-token" not in caplog.text


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"timestamp": "2026-')

    assert audit_log(REQUEST, YES, file) is True

    assert json.loads(file.read_text().splitlines()[1])["response"]["approved"] is True


def test_text_that_json_does_not_know_is_written_anyway(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    request = REQUEST.model_copy(update={"details": {"data": b"x", "text": "ü \ud800", "path": Path("a")}})

    assert audit_log(request, YES, file) is True

    assert json.loads(file.read_text(encoding="utf-8"))["request"]["details"]["data"] == "<bytes:1>"


def test_the_default_file_is_in_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert audit_log(REQUEST, YES, session_id="s", tool_call_id="c", source="rule") is True

    assert (tmp_path / ".amplifier/audit/approvals.jsonl").is_file()
