"""Settings that guard something, written wrongly: what cannot be understood never opens what it was meant to close."""

import inspect
import logging
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ToolResult
from amplifier_core.testing import MockCoordinator

UNUSABLE = [5, {"rm": True}, [["rm"]]]


class Mounted:
    """A module on a coordinator of its own."""

    def __init__(self, coordinator: MockCoordinator) -> None:
        self.coordinator = coordinator

    async def use(self, tool: str, **given: Any) -> ToolResult:
        return await self.coordinator.get("tools")[tool].execute(given)

    def requires_approval(self, tool: str) -> bool:
        return bool(self.coordinator.get("tools")[tool].get_metadata()["requires_approval"])

    async def before(self, tool: str, **given: Any) -> str:
        """Return what the hooks say about a call."""
        data = {"tool_name": tool, "tool_input": given, "tool_call_id": "c"}
        return (await self.coordinator.hooks.emit("tool:pre", data)).action


@pytest.fixture
async def mounted(tmp_path: Path) -> AsyncIterator[Any]:
    cleanups = []

    async def mount(module_id: str, **config: Any) -> Mounted:
        coordinator = MockCoordinator()
        coordinator.register_capability("session.working_dir", str(tmp_path))
        cleanup = await import_module(f"amplifier_module_{module_id.replace('-', '_')}").mount(coordinator, config)
        if cleanup is not None:
            cleanups.append(cleanup)
        return Mounted(coordinator)

    yield mount
    for cleanup in cleanups:
        ended = cleanup()
        if inspect.isawaitable(ended):
            await ended


def code_of(result: ToolResult) -> str | None:
    return None if result.success or result.error is None else result.error.get("code")


@pytest.mark.parametrize("value", ["maybe", True, 1, ["enforce"]])
async def test_a_file_is_read_before_it_is_written_if_it_is_not_clear_whether_it_must(
    mounted: Any, tmp_path: Path, value: Any
) -> None:
    files = await mounted("tool-filesystem", read_before_write=value)
    (tmp_path / "a.txt").write_text("old")

    assert code_of(await files.use("write_file", file_path="a.txt", content="new")) == "not_read"
    assert (tmp_path / "a.txt").read_text() == "old"


async def test_approval_is_required_if_it_is_not_clear_whether_it_is(mounted: Any) -> None:
    files = await mounted("tool-filesystem", require_approval="perhaps")
    shell = await mounted("tool-bash", require_approval="perhaps")

    assert [files.requires_approval("write_file"), shell.requires_approval("bash")] == [True, True]


@pytest.mark.parametrize("config", [{"denied_commands": "touch"}, {"safety_overrides": {"block": "touch"}}])
async def test_one_denied_command_is_a_list_of_one(mounted: Any, tmp_path: Path, config: dict[str, Any]) -> None:
    shell = await mounted("tool-bash", **config)

    assert code_of(await shell.use("bash", command="touch a")) == "command_denied"
    assert (await shell.use("bash", command="true")).success
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "config",
    [
        *({"denied_commands": value} for value in UNUSABLE),
        *({"safety_overrides": {"block": value}} for value in UNUSABLE),
        *({"safety_overrides": value} for value in (5, "rm", ["rm"])),
    ],
)
async def test_no_command_runs_while_nobody_knows_which_are_denied(mounted: Any, config: dict[str, Any]) -> None:
    shell = await mounted("tool-bash", **config)

    assert code_of(await shell.use("bash", command="true")) == "command_denied"


@pytest.mark.parametrize("value", ["SECRET_*", 5, {"SECRET_*": True}])
async def test_a_variable_that_may_be_denied_is_not_handed_on(
    mounted: Any, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setenv("SECRET_PLACE", "under the stone")
    shell = await mounted("tool-bash", env_deny=value)

    result = await shell.use("bash", command="echo [$SECRET_PLACE]")

    assert result.output["stdout"] == "[]\n"


async def test_limits_that_cannot_be_read_are_narrow(mounted: Any) -> None:
    shell = await mounted("tool-bash", max_timeout="long", timeout=0.2)

    result = await shell.use("bash", command="sleep 30", timeout=25)

    assert code_of(result) == "timeout"


@pytest.mark.parametrize("value", ["perhaps", 7, ["127.0.0.1"]])
async def test_private_networks_stay_closed_if_it_is_not_clear_whether_they_are(mounted: Any, value: Any) -> None:
    web = await mounted("tool-web", blocked_domains=[], block_private_networks=value)

    result = await web.use("web_fetch", url="http://127.0.0.1:9/")

    assert code_of(result) == "blocked_url"


@pytest.mark.parametrize("switch", [{"enabled": "perhaps"}, {"disabled": "perhaps"}, {"enabled": [True]}])
async def test_a_server_that_may_be_disabled_is_not_started(mounted: Any, switch: dict[str, Any]) -> None:
    servers = await mounted("tool-mcp", servers={"s": {"command": "true", **switch}})

    assert servers.coordinator.get_capability("mcp.servers") == []


@pytest.mark.parametrize(("value", "inheritance"), [("bash", {"exclude_tools": ["bash"]}), (5, {"inherit_tools": []})])
async def test_a_child_gets_no_tool_that_may_be_excluded(mounted: Any, value: Any, inheritance: Any) -> None:
    task = await mounted("tool-task", exclude_tools=value)
    given: list[dict[str, Any]] = []

    async def spawn(**keywords: Any) -> dict[str, Any]:
        given.append(keywords)
        return {"output": "done", "session_id": "child-1"}

    task.coordinator.register_capability("session.spawn", spawn)
    task.coordinator.config["agents"] = {"helper": {"description": "Helps."}}
    result = await task.use("task", agent="helper", instruction="Help.")

    assert result.success, result.error
    assert given[0]["tool_inheritance"] == inheritance


async def test_one_pattern_that_must_be_asked_about_is_a_list_of_one(mounted: Any) -> None:
    guard = await mounted(
        "hooks-approval", patterns="git push", high_risk_tools="deploy", auto_approve=True, audit={"enabled": False}
    )

    assert await guard.before("bash", command="git status") == "continue"
    assert await guard.before("bash", command="git push") == "deny"


async def test_one_high_risk_tool_is_a_list_of_one(mounted: Any) -> None:
    guard = await mounted("hooks-approval", high_risk_tools="deploy", audit={"enabled": False})

    assert await guard.before("deploy") == "deny"


async def test_one_custom_pattern_is_a_list_of_one(mounted: Any) -> None:
    guard = await mounted("hooks-redaction", custom_patterns=r"ACME-\d+")

    scrub = guard.coordinator.get_capability("redaction.scrub")

    assert scrub({"text": "it is ACME-42"}) == {"text": "it is [REDACTED:SECRET]"}


async def test_what_is_used_instead_is_told(mounted: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await mounted("tool-filesystem", read_before_write="maybe")

    (record,) = caplog.records
    assert "'read_before_write' is 'maybe', allowed: one of off, warn, enforce; 'enforce' is used" in record.message
