"""What a person is shown of the list, and where."""

import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from amplifier_module_hooks_todo_display import mount
from amplifier_module_hooks_todo_display.display import TodoDisplayHooks, width_of

from amplifier_core.testing import MockCoordinator

TODOS = [
    {"content": "Read", "activeForm": "Reading", "status": "completed"},
    {"content": "Write", "activeForm": "Writing\x1b[31m", "status": "in_progress"},
    {"content": "試験する", "activeForm": "試験中", "status": "pending"},
]


class Display:
    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def show(self, **what: Any) -> None:
        self.shown.append(what)


async def shown_after(result: Any, given: Any = None, **config: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    coordinator = MockCoordinator()
    coordinator.display_system = display = Display()
    await mount(coordinator, config)
    call = {"tool_name": "todo", "tool_call_id": "c1", "tool_input": given or {}}
    await coordinator.hooks.emit("tool:pre", dict(call))
    answer = await coordinator.hooks.emit("tool:post", {**call, "result": result})
    return display.shown, answer.data or {}


@pytest.mark.parametrize("status", ["created", "updated", "listed"])
@pytest.mark.parametrize("in_result", [True, False])
async def test_the_list_goes_to_the_display_as_data(status: str, in_result: bool) -> None:
    output = {"status": status, **({"todos": TODOS} if in_result else {"count": 3})}

    shown, data = await shown_after({"success": True, "output": output}, {"todos": TODOS})

    assert shown == [{"kind": "todo", "data": {"title": "Todo", "mode": "full", "todos": TODOS}}]
    assert data["metadata"] == {"todo_displayed": True}


@pytest.mark.parametrize(
    ("result", "config"),
    [
        ({"success": False, "output": "no", "error": {"message": "no"}}, {}),
        ({"success": True, "output": {"status": "created", "todos": []}}, {}),
        ({"success": True, "output": {"status": "created", "todos": TODOS}}, {"mode": "none"}),
    ],
)
async def test_what_is_no_list_is_not_shown(result: Any, config: Any) -> None:
    shown, data = await shown_after(result, **config)

    assert shown == []
    assert "metadata" not in data


def lines(**config: Any) -> list[str]:
    return TodoDisplayHooks(None, config).style.lines(list(TODOS))


def test_lines_fit_their_width_whatever_they_say() -> None:
    bordered = lines(max_width=20)

    assert bordered == [
        "┌ Todo ────────────┐",
        "│ ✓ Read           │",
        "│ ▶ Writing\\x1b[3… │",
        "│ ○ 試験する       │",
        "│ ████████░░░░░░░… │",
        "└──────────────────┘",
    ]
    assert {width_of(line) for line in bordered} == {20}


def test_a_condensed_list_is_what_is_under_way() -> None:
    plain = {"show_border": False, "progress_bar_width": 6}

    assert lines(mode="condensed", **plain) == ["Todo", "▶ Writing\\x1b[31m", "██░░░░ 1/3"]
    assert lines(mode="auto", compact_threshold=2, **plain) == lines(mode="condensed", **plain)
    assert lines(mode="auto", compact_threshold=3, **plain) == lines(**plain)


PROGRAM = """
import asyncio
from amplifier_core.testing import MockCoordinator
from amplifier_module_hooks_todo_display import mount

async def main():
    coordinator = MockCoordinator()
    coordinator.display_system = None
    await mount(coordinator, {"show_border": False, "show_progress_bar": False})
    todos = [{"content": "Read", "activeForm": "Reading", "status": "in_progress"}]
    result = {"success": True, "output": {"status": "created", "todos": todos}}
    await coordinator.hooks.emit("tool:post", {"tool_name": "todo", "tool_input": {}, "result": result})

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("plain", "expected"), [("", b"\x1b[1m\xe2\x96\xb6 Reading\x1b[0m"), ("1", b"\xe2\x96\xb6 Reading")]
)
def test_it_is_printed_only_on_a_terminal_without_a_display(plain: str, expected: bytes) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment |= {"NO_COLOR": plain} if plain else {}
    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM], stdout=slave, env=environment, check=True, timeout=60)
    piped = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=60)
    os.close(slave)
    printed = os.read(master, 4096)
    os.close(master)

    assert printed.splitlines() == [b"Todo", expected]
    assert piped.stdout == b""
