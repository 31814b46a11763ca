"""The timeline: what each turn did when, what it waited for, what it cost."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .page_daemon import PageDaemon
from .sample_sessions import session_with_a_hook
from .visits import visit

TURNS = 500
ROWS = ".fall-row:not([data-kind=hook])"  # on a busy machine the hooks of any event may have a row, too


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def usage(count: int) -> dict[str, Any]:
    return {"input_tokens": count, "output_tokens": 10, "cost_usd": "0.01"}


SCRIPT = [
    {
        "text": "Both files.",
        "tool_calls": [call("read_file", file_path="a.md"), call("write_file", file_path="b.md", content="b")],
        "usage": usage(1000),
    },
    {"error": {"type": "rate_limit", "message": "slow down", "retry_after": 0.2}},
    {
        "text": "Now the helper.",
        "tool_calls": [call("task", agent="helper", instruction="Look at a.md")],
        "usage": usage(2000),
    },
    {"text": "All done.", "usage": usage(3000)},
    {"text": "Again.", "usage": usage(4000)},
]
HELPER = {
    "description": "Helps.",
    "instruction": "You help.",
    "providers": [
        {
            "module": "provider-mock",
            "config": {"script": [{"tool_calls": [call("read_file", file_path="a.md")]}, "It says a."]},
        }
    ],
}


def approve(daemon: PageDaemon, session_id: str) -> None:
    """Say yes to the next question of a session."""
    while not (pending := daemon.api.get(f"/sessions/{session_id}/approvals").json()["pending"]):
        time.sleep(0.05)
    path = f"/sessions/{session_id}/approvals/{pending[0]['request_id']}"
    daemon.api.post(path, json={"decision": "allow"}).raise_for_status()


@pytest.fixture(scope="module")
def busy(daemon: PageDaemon) -> str:
    """A session with a turn that did a bit of everything, and a short one after it."""
    (daemon.directory / "a.md").write_text("a\n")
    provider = {"script": SCRIPT, "tool_trigger": None, "max_retries": 2}
    plan = {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": provider}],
        "tools": [{"module": "tool-filesystem"}, {"module": "tool-task"}],
        "hooks": [{"module": "hooks-approval"}],
        "agents": {"helper": HELPER},
    }
    made = daemon.api.post("/sessions", json={"mount_plan": plan, "working_dir": str(daemon.directory)})
    session_id: str = made.raise_for_status().json()["session_id"]
    daemon.begin(session_id, "Do everything")
    approve(daemon, session_id)
    while daemon.api.get(f"/sessions/{session_id}").json()["turn_count"] < 1:
        time.sleep(0.05)
    daemon.run(session_id, "Once more")
    return session_id


def rows(page: Page) -> list[str]:
    return [str(row.get_attribute("aria-label")) for row in page.locator(ROWS).all()]


def test_a_turn_is_a_waterfall_of_models_tools_agents_and_waits(page: Page, busy: str) -> None:
    visit(page, f"/app/sessions/{busy}/timeline?turn=1")
    expect(page.get_by_role("button", name="Turn 1")).to_have_attribute("aria-expanded", "true")
    expect(page.locator(ROWS)).to_have_count(9)

    names = [row.split(",")[0] for row in rows(page)]
    assert names == [
        *("Model mock-model", "Tool read_file", "Tool write_file", "Model mock-model", "Agent helper"),
        *("Model mock-model", "Tool read_file", "Model mock-model", "Model mock-model"),
    ]
    depths = page.locator(ROWS).evaluate_all("(all) => all.map((one) => one.style.getPropertyValue('--depth'))")
    assert depths == ["0", "0", "0", "0", "0", "1", "1", "1", "0"]
    assert "waited for approval" in rows(page)[2]
    assert "waited to try again" in rows(page)[3]
    assert "1010 tokens, $0.010" in rows(page)[0]
    assert page.locator(".fall-wait").count() == 2


def test_a_row_shows_its_events_with_their_data(page: Page, busy: str) -> None:
    visit(page, f"/app/sessions/{busy}/timeline?turn=1")

    page.get_by_role("button", name="Tool write_file").click()

    details = page.get_by_role("region", name="Details")
    expect(details.get_by_role("heading", name="write_file")).to_be_visible()
    expect(details).to_contain_text("In parallel with")
    expect(details.get_by_label("Data of tool:pre")).to_contain_text('"content": "b"')
    expect(details.get_by_label("Data of tool:outcome")).to_contain_text('"success": true')


def test_the_timeline_is_used_by_keyboard_alone(page: Page, busy: str) -> None:
    visit(page, f"/app/sessions/{busy}/timeline")
    latest = page.get_by_role("button", name="Turn 2")
    expect(page.locator(ROWS)).to_have_count(1)

    latest.focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(ROWS)).to_have_count(10)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="read_file")).to_be_focused()
    page.keyboard.press("Escape")

    expect(page.get_by_role("region", name="Details")).to_be_hidden()
    expect(page.get_by_role("button", name="Tool read_file").first).to_be_focused()


def test_what_hooks_took_is_shown(page: Page, daemon: PageDaemon) -> None:
    session_id = session_with_a_hook(daemon)
    daemon.run(session_id, "Hello")
    visit(page, f"/app/sessions/{session_id}/timeline")

    hooks = page.get_by_role("button", name="Hook Hooks at provider:request")
    expect(hooks).to_have_accessible_name(re.compile(r"took ([6-9]\d|\d{3,}) ms|took \d+\.\d s"))
    hooks.click()

    details = page.get_by_role("region", name="Details")
    expect(details.get_by_label("Data of provider:request")).to_have_count(0)
    expect(details.get_by_role("link", name="Which hooks hear what")).to_be_visible()
    page.get_by_role("button", name="All events of this turn").click()
    expect(details).to_contain_text("Hooks took")


def test_cost_and_tokens_are_plotted_and_told_as_a_table(page: Page, busy: str) -> None:
    visit(page, f"/app/sessions/{busy}/timeline")
    expect(page.get_by_role("img", name="Cost per turn: $0.040 in all")).to_be_visible()
    expect(page.get_by_role("img", name="Tokens per turn")).to_be_visible()

    page.get_by_text("Show the numbers as a table").click()
    row = page.get_by_role("row", name="Turn 2")
    expect(row).to_contain_text("4,000")
    row.get_by_role("button").click()

    expect(page.get_by_role("button", name="Turn 2").last).to_be_focused()


def test_a_running_turn_is_drawn_while_it_runs(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session({"text": "Late.", "latency_ms": 60_000})
    visit(page, f"/app/sessions/{session_id}/timeline")
    expect(page.get_by_role("heading", name="Nothing has happened yet")).to_be_visible()

    daemon.begin(session_id, "Take your time")
    page.get_by_role("button", name="Turn 1").click()

    expect(page.locator(".fall-row[data-kind=model][data-state=running]")).to_be_visible()
    queued = {"prompt": "Next, please", "queue": True}
    daemon.api.post(f"/sessions/{session_id}/execute/stream", json=queued).raise_for_status()
    daemon.api.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).raise_for_status()
    expect(page.locator(".turn-item[data-state=cancelled]")).to_contain_text("Stopped")
    expect(page.locator(".fall-row[data-state=cut]")).to_be_visible()
    page.get_by_role("button", name="Turn 2").click()
    expect(page.get_by_role("button", name="Wait Queue")).to_be_visible()


def test_a_night_of_waiting_is_drawn_shorter_than_the_work(page: Page) -> None:
    night = 8 * 3_600_000
    visit(page, "/app/")
    drawn = page.evaluate(
        """async (night) => {
          const { TimeScale } = await import("/app/views/timeline/time-scale.js");
          const work = [{ begin: 0, end: 1000 }, { begin: night + 1000, end: night + 2000 }];
          const scale = new TimeScale(0, night + 2000, work);
          return [scale.folds.length, scale.percent(1000), scale.percent(night + 1000), scale.percent(night + 2000)];
        }""",
        night,
    )

    folds, worked, woke, ended = drawn
    assert (folds, ended) == (1, 100)
    assert 40 < worked < woke < 60


def test_five_hundred_turns_of_hostile_names_stay_usable(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("Never said.")
    directory = daemon.directory.parent / "home/state/sessions" / session_id
    with (directory / "events.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in many_events(session_id))

    visit(page, f"/app/sessions/{session_id}/timeline?turn=250")

    expect(page.locator(".turn-item")).to_have_count(TURNS)
    row = page.locator(".fall-row", has_text="<img src=x onerror=alert(1)>")
    expect(row).to_have_count(1)
    row.click()
    expect(page.get_by_label("Data of tool:pre")).to_contain_text("alert(1)")
    assert page.locator("view-timeline img").count() == 0


def many_events(session_id: str) -> list[dict[str, Any]]:
    """Return ten events for each turn of a long session, as they are stored."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    count = {"input": 100, "output": 10, "total": 110, "cache_read": 0, "cache_write": 0}
    done = {"status": "completed", "usage": {"tokens": count, "tool_calls": 1, "cost_usd": "0.001"}}
    tool = {"tool_name": "<img src=x onerror=alert(1)>", "tool_call_id": "c", "tool_input": {"path": "a\u202eb"}}
    found: list[dict[str, Any]] = []
    for turn in range(1, TURNS + 1):
        steps: list[tuple[str, dict[str, Any]]] = [
            ("user_message:saved", {"message_id": f"m{turn}", "content": f"<b>prompt</b> {turn}", "turn": turn}),
            ("prompt:submit", {}),
            ("provider:request", {"provider": "mock", "model": "m", "iteration": 1}),
            ("provider:response", {"usage": {"input_tokens": 100, "output_tokens": 10}}),
            ("tool:pre", tool),
            ("tool:intent", tool),
            ("tool:outcome", {"tool_call_id": "c", "success": True}),
            ("tool:post", tool),
            ("prompt:complete", {}),
            ("execution:done", {**done, "turn": turn}),
        ]
        for name, data in steps:
            seq = 1000 + len(found)
            moment = (begin + timedelta(milliseconds=37 * seq)).isoformat().replace("+00:00", "Z")
            found.append(
                {"seq": seq, "ts": moment, "lvl": "INFO", "event": name, "session_id": session_id, "data": data}
            )
    return found
