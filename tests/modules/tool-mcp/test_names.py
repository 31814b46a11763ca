"""Under which names tools are mounted, and which are: hostile names, collisions, filters, strange listings."""

import json
import logging
import re
from typing import Any

import pytest
from raw_mcp_server import entry

from amplifier_core.testing import MockTool

LONG = "x" * 80
NASTY = ["a.b", "a_b", "../../etc", "rm -rf /", "naïve", "a\nb", "", LONG, LONG + "y", "a b"]


def listing(names: list[str]) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return entry("--tools", "--definitions", json.dumps(tools))


async def test_hostile_names_are_made_harmless_and_distinct_whatever_the_order(start_servers: Any) -> None:
    one = await start_servers({"s": listing(NASTY)})
    other = await start_servers({"s": listing(NASTY[::-1])})

    assert len(one.tools) == len(NASTY)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in one.tools)
    assert {name: tool.tool for name, tool in one.tools.items()} == {
        name: tool.tool for name, tool in other.tools.items()
    }
    assert one.tools["mcp_s_a_b"].tool == "a_b"
    assert len({tool.name for tool in one.tools.values()}) == len(NASTY)
    for tool in one.tools.values():
        assert (await tool.execute({})).output == f"{tool.tool} was called"


async def test_equal_names_of_two_servers_are_told_apart(start_servers: Any) -> None:
    mounted = await start_servers({"a": listing(["b_c"]), "a_b": listing(["c"])})

    first, second = sorted(mounted.tools)
    assert (first, mounted.tools[first].server) == ("mcp_a_b_c", "a")
    assert re.fullmatch(r"mcp_a_b_c_[0-9a-f]{8}", second)
    assert mounted.tools[second].server == "a_b"


async def test_a_tool_that_is_mounted_elsewhere_is_never_replaced(mount_servers: Any) -> None:
    mounted = await mount_servers({"s": listing(["echo"])})
    foreign = MockTool("mcp_s_echo")
    await mounted.coordinator.mount("tools", foreign)

    await mounted.prompt()

    assert mounted.tools["mcp_s_echo"] is foreign
    (own,) = [tool for tool in mounted.tools.values() if tool is not foreign]
    assert re.fullmatch(r"mcp_s_echo_[0-9a-f]{8}", own.name)
    await mounted.cleanup()
    assert mounted.tools == {"mcp_s_echo": foreign}


async def test_the_prefix_may_be_another_or_none(start_servers: Any) -> None:
    mounted = await start_servers({"a": listing(["x"]), "b": {**listing(["x"]), "tool_prefix": "ext."}}, tool_prefix="")

    assert set(mounted.tools) == {"a_x", "ext_b_x"}


async def test_allow_and_deny_choose_the_tools(start_servers: Any, complaints: Any) -> None:
    names = ["get_a", "get_b", "get_secret", "GET_c", "set_a"]
    server = {**listing(names), "allow": ["get_*", "never_*"], "deny": ["get_secret"]}

    mounted = await start_servers({"s": server})

    assert set(mounted.tools) == {"mcp_s_get_a", "mcp_s_get_b"}
    assert [text for text in complaints(logging.WARNING) if "'never_*'" in text] != []


async def test_more_tools_than_allowed_are_left_out_with_a_warning(start_servers: Any, complaints: Any) -> None:
    mounted = await start_servers({"s": listing([f"t{number}" for number in range(5)])}, max_tools=2)

    assert len(mounted.tools) == 2
    assert ["3 of 5 tools are left out" in text for text in complaints(logging.WARNING)] == [True]


async def test_a_listing_comes_page_by_page(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--pages", "--tools", *"abcdef")})

    assert set(mounted.tools) == {f"mcp_s_{name}" for name in "abcdef"}


async def test_a_listing_that_goes_in_circles_ends_with_a_warning(start_servers: Any, complaints: Any) -> None:
    mounted = await start_servers({"s": entry("--pages", "--tools", "a", "b", "--last-cursor", "1")})

    assert set(mounted.tools) == {"mcp_s_a", "mcp_s_b"}
    assert any("does not end" in text for text in complaints(logging.WARNING))


DEFINITIONS: list[dict[str, Any]] = [
    {"name": "bare", "inputSchema": {}},
    {"name": "list", "inputSchema": {"type": "array"}},
    {"name": "titled", "title": "A \u0007title", "inputSchema": {"type": "object"}, "description": "  "},
    {"name": "wordy", "inputSchema": {"type": "object"}, "description": "be\u0000ll " + "x" * 5000},
    {
        "name": "open",
        "inputSchema": {"additionalProperties": False, "x-note": [1], "$ref": "#/$defs/a", "$defs": {"a": {}}},
    },
]


async def test_schemas_and_descriptions_are_completed_and_cleaned(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "--definitions", json.dumps(DEFINITIONS))})

    assert set(mounted.tools) == {f"mcp_s_{name}" for name in ("bare", "titled", "wordy", "open")}
    assert mounted.tool("bare").input_schema == {"type": "object", "properties": {}}
    assert mounted.tool("bare").description == "The tool bare of the MCP server s."
    assert mounted.tool("titled").description == "A title"
    assert mounted.tool("wordy").description == ("bell " + "x" * 5000)[:4096]
    assert mounted.tool("open").input_schema == {
        **DEFINITIONS[4]["inputSchema"],
        "type": "object",
        "properties": {},
    }
    mounted.tool("open").input_schema["properties"]["more"] = {}
    assert mounted.tool("open").input_schema["properties"] == {}


@pytest.mark.parametrize("given", [None, [], "text", 3])
async def test_input_that_is_no_object_is_refused(start_servers: Any, given: Any) -> None:
    mounted = await start_servers({"s": entry()})

    assert (await mounted.tool("echo").execute(given)).error["code"] == "invalid_input"
