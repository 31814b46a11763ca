"""A real server, made with the official SDK, over stdio and over HTTP, with today's protocol and the earlier ones."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from mounted_servers import Mounted
from sdk_servers import HttpServer, Nursery, http_server, stdio_entry

from amplifier_core.testing import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

WIRES = [("stdio", "auto"), ("stdio", "legacy"), ("http", "auto"), ("http", "legacy")]
SLOW_S = 30.0
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(40))).decode()
PLACE = {
    "$defs": {
        "Area": {
            "properties": {"corners": {"items": {"$ref": "#/$defs/Point"}, "title": "Corners", "type": "array"}},
            "required": ["corners"],
            "title": "Area",
            "type": "object",
        },
        "Point": {
            "properties": {
                "x": {"title": "X", "type": "integer"},
                "y": {"default": 0, "title": "Y", "type": "integer"},
            },
            "required": ["x"],
            "title": "Point",
            "type": "object",
        },
    },
    "properties": {
        "where": {"anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Area"}], "title": "Where"},
        "label": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Label"},
    },
    "required": ["where"],
    "title": "placeArguments",
    "type": "object",
}


@pytest.fixture(scope="module")
def http(nursery: Nursery) -> Iterator[HttpServer]:
    with http_server(nursery) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WIRES, ids="-".join)
async def mounted(request: pytest.FixtureRequest, http: HttpServer) -> AsyncIterator[Any]:
    """The module with one server."""
    transport, protocol = request.param
    make = stdio_entry if transport == "stdio" else http.entry
    mounted = await Mounted.make({"s": make(protocol=protocol, call_timeout=SLOW_S, max_concurrent_calls=4)})
    assert mounted.tools == {}
    await mounted.prompt()
    yield mounted
    await mounted.cleanup()
    assert mounted.tools == {}
    assert mounted.status()["state"] == "stopped"
    assert [data["reason"] for data in mounted.told("server_stopped")] == ["cleanup"]


async def test_a_server_is_started_and_tells_who_it_is(mounted: Any) -> None:
    status, (told, *_) = mounted.status(), [one for one in mounted.told("server_started") if one["server"] == "s"]

    assert status["state"] == "ready"
    assert status["server_info"]["name"] == "stand-in"
    assert status["instructions"] == "Be gentle."
    assert set(status["tools"]) == {name for name in mounted.tools if name.startswith("mcp_s_")}
    assert (told["server_name"], told["server_version"], told["restarts"]) == ("stand-in", "1.2.3", 0)
    assert told["transport"] == status["transport"]
    assert told["pid"] == status["pid"]
    assert isinstance(told["duration_ms"], int)
    assert all("gentle" not in tool.description for tool in mounted.tools.values())


async def test_the_protocol_asked_for_is_spoken(mounted: Any, request: pytest.FixtureRequest) -> None:
    is_current = mounted.status()["protocol_version"] >= "2026"

    assert is_current is ("auto" in request.node.callspec.id)


async def test_a_schema_with_defs_and_any_of_arrives_unchanged(mounted: Any) -> None:
    tool = mounted.tool("place")

    assert tool.input_schema == tool.get_schema() == PLACE
    assert tool.description == "Put something somewhere."


async def test_text_comes_back(mounted: Any) -> None:
    result = await mounted.call("echo", text="grüße\n\N{SNOWMAN}")

    assert (result.success, result.output, result.content) == (True, "grüße\n\N{SNOWMAN}", None)


SHAPES = {
    "text": "one\ntwo",
    "image": "before\n[image: image/png, 48 bytes]\nafter",
    "broken image": "[image: image/png, 3 bytes, not valid base64]",
    "odd image": "[image: image/x-odd, 48 bytes, a type that cannot be shown]",
    "audio": "[audio: audio/wav, 48 bytes, not shown]",
    "text resource": "[resource file:///a.txt (text/plain)]\nhi",
    "blob resource": "[resource file:///a.bin (x/y), 48 bytes, binary, not shown]",
    "image resource": "[image: image/png, 48 bytes]",
    "link": "[resource link file:///l (a/b)] A link far",
    "empty": None,
}


@pytest.mark.parametrize("kind", SHAPES)
async def test_every_kind_of_block_becomes_text_and_images_stay_images(mounted: Any, kind: str) -> None:
    result = await mounted.call("answer", kind=kind)

    assert result.success
    assert result.output == SHAPES[kind]
    shown = [block.type for block in result.content or ()]
    assert shown == {"image": ["text", "image", "text"], "image resource": ["image"]}.get(kind, [])
    assert [block.source["data"] for block in result.content or () if block.type == "image"] == [PIXEL] * len(
        [one for one in shown if one == "image"]
    )


async def test_structured_content_alone_is_the_output(mounted: Any) -> None:
    result = await mounted.call("structure")

    assert result.output == {"deep": [1, {"two": None}]}


async def test_an_image_of_3_mb_arrives_whole(mounted: Any) -> None:
    result = await mounted.call("picture", size=3_000_000)

    assert result.output == "[image: image/jpeg, 3000000 bytes]"
    assert base64.b64decode(result.content[0].source["data"]) == bytes(3_000_000)


async def test_an_image_that_is_too_large_is_told_instead(mounted: Any) -> None:
    result = await mounted.call("picture", size=6_000_000)

    assert result.output == "[image: image/jpeg, 6000000 bytes, more than 5242880]"
    assert result.content is None


async def test_200000_characters_are_cut_at_the_limit_after_a_line(mounted: Any) -> None:
    result = await mounted.call("echo", text="0123456789abcdef\n" * 11_765)

    shown, _, note = result.output.rpartition("...")
    assert note == f" [truncated: {len(shown)} of 200005 characters]"
    assert 49_900 < len(shown) <= 50_000
    assert shown.endswith("f\n")


async def test_a_tool_that_raises_is_a_failed_result(mounted: Any) -> None:
    result = await mounted.call("fail", text="the disk is full")

    said = "Error executing tool fail: the disk is full"
    assert (result.success, result.output) == (False, said)
    assert result.error == {"message": said, "code": "tool_error", "server": "s", "tool": "fail"}


async def test_arguments_the_server_refuses_come_back_as_a_failure(mounted: Any) -> None:
    result = await mounted.call("picture", size="huge")

    assert not result.success
    assert result.error["code"] in ("tool_error", "invalid_input")


async def test_what_is_required_is_asked_for_without_the_server(mounted: Any) -> None:
    results = [await mounted.tool("echo").execute(given) for given in ({}, None, [], {"_tool_call_id": "x"})]

    assert [result.error["code"] for result in results] == ["invalid_input"] * 4
    assert results[0].output == "mcp_s_echo: 'text' is required"


async def test_keys_of_the_loop_are_not_sent(mounted: Any) -> None:
    assert (await mounted.call("echo", text="x", _tool_call_id="y")).output == "x"


async def test_what_is_no_json_is_not_sent(mounted: Any) -> None:
    for text in ("\ud800", float("nan"), object()):
        assert (await mounted.call("echo", text=text)).error["code"] == "invalid_input"
    assert (await mounted.call("echo", text="still there")).success


async def test_progress_is_announced_at_most_ten_times_a_second(mounted: Any) -> None:
    started = time.monotonic()
    await mounted.call("steps", count=200)
    took_s = time.monotonic() - started

    told = mounted.told("progress")
    mounted.recorder.events = [event for event in mounted.recorder.events if event[0] != "tool-mcp:progress"]
    assert 1 <= len(told) <= 2 + took_s * 10
    assert told[0]["tool_name"] == "mcp_s_steps"
    assert (told[0]["server"], told[0]["tool"], told[0]["total"]) == ("s", "steps", 200.0)
    assert told[0]["message"].startswith("step ")


async def counts(mounted: Any) -> dict[str, int]:
    found: dict[str, int] = (await mounted.call("counts")).output
    return found


async def cancelled(mounted: Any, before: int) -> None:
    """Wait until the server has seen one more cancellation."""
    for _ in range(500):
        if (await counts(mounted))["cancelled"] > before:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the server was not told")


async def test_a_cancelled_turn_cancels_the_call_at_the_server(mounted: Any) -> None:
    before = (await counts(mounted))["cancelled"]
    calling = asyncio.create_task(mounted.call("sleep", seconds=60))
    await asyncio.sleep(0.1)

    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    await cancelled(mounted, before)
    assert (await mounted.call("echo", text="again")).output == "again"


async def test_20_parallel_calls_overlap_up_to_the_limit(mounted: Any) -> None:
    results = await asyncio.gather(*(mounted.call("gather", seconds=0.05) for _ in range(20)))

    assert [result.output for result in results] == ["gathered"] * 20
    assert (await counts(mounted))["most"] == 4


async def test_a_tool_that_is_added_can_be_used_in_the_same_turn_and_one_that_is_removed_is_gone(mounted: Any) -> None:
    await asyncio.sleep(0.3)  # what earlier tests had listed
    before = len([one for one in mounted.told("tools_changed") if one["server"] == "s"])

    await mounted.call("offer", names=["new.one", "another"])
    assert await wait_for(lambda: "mcp_s_new_one" in mounted.tools, SLOW_S)
    assert (await mounted.call("new_one", text="works")).output == "works"
    assert mounted.tool("new_one").tool == "new.one"
    told = [one for one in mounted.told("tools_changed") if one["server"] == "s"][before:]
    assert [(sorted(one["added"]), one["removed"], one["changed"]) for one in told] == [
        (["mcp_s_another", "mcp_s_new_one"], [], [])
    ]

    for name in ("new.one", "another"):
        await mounted.call("withdraw", name=name)
    assert await wait_for(lambda: "mcp_s_new_one" not in mounted.tools, SLOW_S)
    assert await wait_for(lambda: "mcp_s_another" not in mounted.tools, SLOW_S)
