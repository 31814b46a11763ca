"""What stands in a line of the log."""

import asyncio
import json
import re
from collections import UserDict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from amplifier_module_hooks_logging import mount
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core.models import ToolResult
from amplifier_core.testing import MockCoordinator


async def test_session_start_is_a_line_at_the_template_with_the_timestamp_handlers_see(logs: Any) -> None:
    seen: dict[str, Any] = {}

    async def watch(event: str, data: dict[str, Any]) -> None:
        seen.update(data)

    logs.coordinator.hooks.register("session:start", watch, priority=1)
    await logs.mount()

    await logs.emit("session:start", session_id="s1", metadata={"who": "Zoë"})

    line = logs.path("s1").read_text(encoding="utf-8")
    record = json.loads(line)
    assert line.endswith("\n")
    assert "Zoë" in line
    assert record["ts"] == seen["timestamp"]
    assert "timestamp" not in record["data"]
    assert (record["event"], record["lvl"], record["session_id"]) == ("session:start", "INFO", "s1")
    assert record["schema"] == {"name": "amplifier.log", "ver": "1.0.0"}


async def test_what_all_events_share_is_lifted_out_of_the_data(logs: Any) -> None:
    shared = {
        "redaction": {"applied": True},
        "status": "ok",
        "duration_ms": 12,
        "module": "m",
        "component": "c",
        "error": None,
        "request_id": "r",
        "span_id": "sp",
        "parent_span_id": "ps",
        "session_id": "s1",
    }
    await logs.mount()

    await logs.emit("tool:post", **shared, tool_name="bash")

    (record,) = logs.records("s1")
    assert {key: record[key] for key in shared} == shared
    assert record["data"] == {"tool_name": "bash"}


async def test_a_record_without_anything_else_has_no_data(logs: Any) -> None:
    await logs.mount()

    await logs.emit("plan:start")

    assert set(logs.records()[0]) == {"ts", "lvl", "schema", "event", "session_id"}


@pytest.mark.parametrize(
    ("event", "payload", "level"),
    [
        ("tool:pre", {}, "INFO"),
        ("tool:pre", {"lvl": "WARNING"}, "WARNING"),
        ("tool:pre", {"status": "error"}, "ERROR"),
        ("tool:pre", {"error": {"type": "X"}}, "ERROR"),
        ("tool:pre", {"error": ""}, "INFO"),
        ("tool:error", {}, "ERROR"),
        ("tool:error", {"lvl": "WARNING"}, "ERROR"),
        ("tool:error", {"lvl": "DEBUG"}, "DEBUG"),
    ],
)
async def test_the_level_is_the_events_own_and_an_error_is_an_error_unless_it_is_for_debugging(
    logs: Any, event: str, payload: dict[str, Any], level: str
) -> None:
    await logs.mount()

    await logs.emit(event, **payload)

    assert logs.records()[0]["lvl"] == level
    assert "lvl" not in logs.records()[0].get("data", {})


@pytest.mark.parametrize(
    ("minimum", "written"),
    [(None, 4), ("DEBUG", 4), ("info", 3), ("WARNING", 2), ("ERROR", 1)],
)
async def test_the_configured_level_is_the_least_that_is_written(logs: Any, minimum: str | None, written: int) -> None:
    await logs.mount(level=minimum)

    for level in ("DEBUG", "INFO", "WARNING", "ERROR"):
        await logs.emit("plan:start", lvl=level)

    assert len(logs.records()) == written


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


def cycle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Decimal("0.0123"), "0.0123"),
        (Decimal("0"), "0"),
        (None, None),
        ({1}, [1]),
        (b"abc", "<bytes:3>"),
        (float("nan"), "nan"),
        pytest.param(10**5000, hex(10**5000), id="more digits than Python prints"),
        (Point(1), {"x": 1}),
        (ToolResult(output="done"), {"success": True, "output": "done", "error": None}),
        (Colour.RED, "red"),
        (UserDict(a=1), {"a": 1}),
        (ValueError("no"), "no"),
        ({("a", 1): 2}, {"('a', 1)": 2}),
        (cycle(), ["<circular>"]),
        pytest.param("\ud800", "?", id="lone surrogate"),
        ("a\u2028b\nc", "a\u2028b\nc"),
    ],
)
async def test_whatever_an_event_carries_becomes_one_valid_line(logs: Any, value: Any, written: Any) -> None:
    await logs.mount()

    await logs.emit("artifact:write", nested=[value])

    (record,) = logs.records()
    found = record["data"]["nested"][0]
    if isinstance(written, dict) and isinstance(found, dict):
        found = {key: found.get(key) for key in written}
    assert found == written


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(), nested, max_size=4), min_size=1, max_size=4))
def test_any_payload_is_exactly_one_line_that_parses(payloads: list[dict[str, Any]]) -> None:
    async def log_to(folder: str) -> None:
        coordinator = MockCoordinator()
        cleanup = await mount(coordinator, {"session_log_template": f"{folder}/log"})
        for payload in payloads:
            await coordinator.hooks.emit("artifact:write", {**payload, "session_id": "s"})
        cleanup()

    with TemporaryDirectory() as folder:
        asyncio.run(log_to(folder))
        content = (Path(folder) / "log").read_bytes()

    assert content.endswith(b"\n")
    assert [json.loads(line)["event"] for line in content[:-1].split(b"\n")] == ["artifact:write"] * len(payloads)


@pytest.mark.parametrize("data", [None, [], "text", 7])
async def test_data_that_is_no_dict_is_tolerated(logs: Any, data: Any) -> None:
    await logs.mount()

    result = await logs.coordinator.hooks.emit("plan:start", data)

    assert result.action == "continue"
    assert logs.events() == ["plan:start"]


async def test_strip_raw_removes_only_raw_at_the_top(logs: Any) -> None:
    await logs.mount(strip_raw=True)

    await logs.emit("llm:request", raw={"body": 1}, provider="mock", nested={"raw": 2})

    data = logs.records()[0]["data"]
    assert "raw" not in data
    assert (data["provider"], data["nested"]) == ("mock", {"raw": 2})


async def test_what_tools_returned_can_be_left_out(logs: Any) -> None:
    await logs.mount(tool_output=False)
    result = {"success": True, "output": "the whole file"}

    await logs.emit("tool:post", tool_name="read_file", result=result, tool_result={**result, "error": None})

    data = logs.records()[0]["data"]
    assert (data["tool_name"], data["result"], data["tool_result"]) == (
        "read_file",
        {"success": True},
        {"success": True},
    )
    assert result["output"] == "the whole file"


async def test_raw_is_kept_by_default(logs: Any) -> None:
    await logs.mount()

    await logs.emit("llm:request", raw={"body": 1})

    assert logs.records()[0]["data"]["raw"] == {"body": 1}


async def test_a_tool_result_that_equals_the_result_is_written_once(logs: Any) -> None:
    await logs.mount()

    await logs.emit("tool:post", result={"output": 1}, tool_result={"output": 1})
    await logs.emit("tool:post", result={"output": 1}, tool_result={"output": 2})

    assert [set(record["data"]) for record in logs.records()] == [{"result"}, {"result", "tool_result"}]


@pytest.mark.parametrize("event", ["session:start", "session:resume"])
async def test_a_plan_is_written_without_its_keys_and_stays_as_it_is(logs: Any, event: str) -> None:
    provider = {"module": "provider-x", "config": {"api_key": "k-123", "model": "m"}}
    plan = {"providers": [provider], "t": ({"token": "x"},)}
    await logs.mount()

    await logs.emit(event, config=plan)

    written = logs.records()[0]["data"]["config"]
    assert written["providers"][0]["config"] == {"api_key": "[REDACTED]", "model": "m"}
    assert written["t"] == [{"token": "[REDACTED]"}]
    assert provider["config"]["api_key"] == "k-123"


async def test_an_event_without_session_belongs_to_the_coordinators(logs: Any) -> None:
    await logs.mount()

    await logs.emit("plan:start")

    assert logs.records("test-session")[0]["session_id"] == "test-session"


async def test_an_event_of_no_session_at_all_is_dropped(logs: Any) -> None:
    logs.coordinator.session_id = ""
    await logs.mount()

    await logs.emit("plan:start")

    assert not logs.folder.exists()


async def test_without_a_timestamp_it_is_now(logs: Any) -> None:
    registered: dict[str, Any] = {}
    logs.coordinator.hooks.register = lambda event, handler, **_: registered.setdefault(event, handler)
    await logs.mount()

    before = datetime.now(UTC)
    await registered["plan:start"]("plan:start", {})

    stamp = logs.records()[0]["ts"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", stamp)
    assert abs((datetime.fromisoformat(stamp) - before).total_seconds()) < 60


async def test_a_payload_is_left_as_it_is(logs: Any) -> None:
    payload = {"lvl": "INFO", "raw": 1, "error": None, "nested": {"a": [1]}, "messages": [{"role": "user"}]}
    await logs.mount(strip_raw=True)
    registered = logs.coordinator.hooks

    await registered.emit("provider:request", payload)

    assert payload == {"lvl": "INFO", "raw": 1, "error": None, "nested": {"a": [1]}, "messages": [{"role": "user"}]}


@pytest.mark.parametrize("output", ["console", "both"])
async def test_the_console_gets_one_line_per_record_too(
    logs: Any, output: str, caplog: pytest.LogCaptureFixture
) -> None:
    await logs.mount(output=output)

    with caplog.at_level("INFO"):
        caplog.clear()
        await logs.emit("tool:error")

    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert json.loads(record.message) == logs.records()[0]
