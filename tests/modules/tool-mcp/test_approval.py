"""Approval: tools ask for it, the guard enforces it, and annotations count only for those who are trusted."""

import json
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount as mount_approval
from raw_mcp_server import entry

from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse

DEFINITIONS = json.dumps(
    [
        {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "title": "Look"}},
        {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": False}},
        {"name": "drop", "inputSchema": {"type": "object"}},
    ]
)


class Denial:
    """Denies everything."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        self.asked.append(request.tool_name)
        return ApprovalResponse(approved=False, reason="no")


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_without_approval_no_tool_reaches_the_server_but_a_trusted_read_only_one(
    start_servers: Any, tmp_path: Path, is_trusted: bool
) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    server = entry("--tools", "--definitions", DEFINITIONS, "--calls", str(calls), trust_annotations=is_trusted)
    mounted = await start_servers({"s": server})
    await mount_approval(mounted.coordinator, {"audit": {"enabled": False}})
    denial = Denial()
    mounted.coordinator.get_capability("approval.register_provider")(denial)

    for name, tool in mounted.tools.items():
        data = {"tool_name": name, "tool_input": {}, "tool_call_id": "c"}
        verdict = await mounted.coordinator.hooks.emit("tool:pre", data)
        if verdict.action != "deny":
            await tool.execute({})

    reached = [json.loads(line)[0] for line in calls.read_text().splitlines() if "notifications/" not in line]
    assert reached == (["look"] if is_trusted else [])
    assert denial.asked == [f"mcp_s_{name}" for name in (["look"] if not is_trusted else []) + ["add", "drop"]]


@pytest.mark.parametrize(
    ("keys", "required", "risks"),
    [
        ({}, [True, True, True], ["high", "high", "high"]),
        ({"trust_annotations": True}, [False, True, True], ["medium", "medium", "high"]),
        ({"require_approval": False}, [False, False, False], ["high", "high", "high"]),
        ({"require_approval": "perhaps"}, [True, True, True], ["high", "high", "high"]),
    ],
    ids=["by default", "trusted", "not required", "nobody knows"],
)
async def test_tools_say_whether_they_need_approval_and_how_risky_they_are(
    start_servers: Any, keys: dict[str, Any], required: list[bool], risks: list[str]
) -> None:
    servers = {"s": entry("--tools", "--definitions", DEFINITIONS, **keys)}
    mounted = await start_servers(servers, require_approval=keys.get("require_approval") != "perhaps")

    tools = [mounted.tool(name) for name in ("look", "add", "drop")]

    assert [tool.require_approval for tool in tools] == required
    assert tools[0].retry == ("never" if required[0] else "safe")
    metadata = [tool.get_metadata() for tool in tools]
    assert [one["requires_approval"] for one in metadata] == required
    assert [one["approval_hints"]["risk_level"] for one in metadata] == risks
    assert metadata[0]["mcp"] == {
        "server": "s",
        "tool": "look",
        "title": "Look",
        "annotations": {"readOnlyHint": True, "title": "Look"},
    }
