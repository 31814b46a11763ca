"""Why calls fail: every error of the protocol, and answers that are none."""

from typing import Any

import pytest
from raw_mcp_server import entry

BLOCK = {"type": "text", "text": "x"}

ERRORS: dict[int, tuple[str, dict[str, Any]]] = {
    -32602: ("invalid_input", {"mcp_code": -32602}),
    -32601: ("not_found", {"mcp_code": -32601}),
    -32042: ("unsupported", {"mcp_code": -32042}),
    -32021: ("unsupported", {"mcp_code": -32021}),
    -32603: ("mcp_error", {"mcp_code": -32603, "mcp_data": {"why": [1]}}),
    5: ("mcp_error", {"mcp_code": 5, "mcp_data": {"why": [1]}}),
    -32001: ("timeout", {"retryable": False}),
    -32000: ("connection_lost", {"retryable": False}),
}


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_every_error_of_the_protocol_has_a_code_of_its_own(start_servers: Any, protocol: str) -> None:
    mounted = await start_servers({"s": entry("--tools", "repeat", protocol=protocol)})

    for code, (kind, details) in ERRORS.items():
        result = await mounted.call("repeat", error={"code": code, "message": "no", "data": {"why": [1]}})

        common = {"message": result.output, "server": "s", "tool": "repeat"}
        assert not result.success
        assert result.error == {**common, "code": kind, **details}


MALFORMED: dict[str, Any] = {
    "no content": {"content": "text"},
    "unknown block": {"content": [{"type": "hologram"}]},
    "not an answer": {"resultType": 3, "content": 7},
}


async def test_a_malformed_result_is_a_protocol_error_and_the_next_call_works(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "repeat", "echo")})

    for kind, malformed in MALFORMED.items():
        result = await mounted.call("repeat", result=malformed)

        assert result.error["code"] == "protocol_error", kind
        assert (await mounted.call("echo", text="fine")).output == "fine"


async def test_structured_content_that_breaks_the_declared_schema_is_a_protocol_error(start_servers: Any) -> None:
    definition = (
        '[{"name": "repeat", "inputSchema": {"type": "object"}, "outputSchema":'
        ' {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}]'
    )
    mounted = await start_servers({"s": entry("--tools", "--definitions", definition)})

    wrong = await mounted.call("repeat", result={"content": [BLOCK], "structuredContent": {"n": "one"}})
    right = await mounted.call("repeat", result={"content": [BLOCK], "structuredContent": {"n": 1}})

    assert wrong.error["code"] == "protocol_error"
    assert (right.success, right.output) == (True, "x")


async def test_a_failed_tool_is_never_without_a_message(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "repeat")})

    empty = await mounted.call("repeat", result={"content": [], "isError": True})
    structured = await mounted.call("repeat", result={"content": [], "structuredContent": {"a": 1}, "isError": True})
    long = await mounted.call("repeat", result={"content": [{"type": "text", "text": "y" * 3000}], "isError": True})

    assert empty.output == "the tool repeat of the server s failed and did not say why"
    assert structured.output == '{"a": 1}'
    assert (len(long.output), len(long.error["message"])) == (3000, 2000)
    assert {result.error["code"] for result in (empty, structured, long)} == {"tool_error"}


async def test_text_is_cut_and_images_behind_it_stay(start_servers: Any) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    blocks = [{"type": "text", "text": "z" * 90}, {"type": "text", "text": "w" * 90}, image]
    mounted = await start_servers({"s": entry("--tools", "repeat")}, max_content_size=100)

    result = await mounted.call("repeat", result={"content": blocks})

    assert result.output == "z" * 90 + "\n" + "w" * 9 + "... [truncated: 100 of 209 characters]"
    assert [block.type for block in result.content] == ["text", "text", "image"]


async def test_structured_content_that_is_too_large_is_cut_as_text(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "repeat")}, max_content_size=50)

    result = await mounted.call("repeat", result={"content": [], "structuredContent": {"a": "b" * 100}})

    assert result.output.endswith("... [truncated: 50 of 109 characters]")


async def test_an_answer_of_too_many_blocks_is_cut_with_a_note(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "flood", max_content_size=1_000_000)})

    result = await mounted.call("flood", blocks=200_000)

    assert result.success
    assert result.output.count("x\n") == 10_000
    assert result.output.endswith("[cut: 10000 of 200000 blocks of the answer are shown; the rest is too much]")


async def test_an_answer_of_too_much_text_is_cut_with_a_note(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "flood", max_content_size=50_000_000)})

    result = await mounted.call("flood", blocks=20, length=1 << 20)

    assert result.output.count("x") == 10 << 20
    assert result.output.endswith("[cut: 10 of 20 blocks of the answer are shown; the rest is too much]")
