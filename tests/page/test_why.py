"""Why: what a request to a model was made of, and where each part came from."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from real_server import plan

from .page_daemon import PageDaemon
from .sample_sessions import session_of, session_with_a_hook
from .visits import visit


@pytest.fixture(scope="module")
def told(daemon: PageDaemon) -> str:
    """A session of a profile with an instruction, context files and a mention."""
    (daemon.directory / "milk.md").write_text("milk costs 1.20\n")
    session_id = session_of(daemon, "foundation/offline")
    for prompt in ("read milk.md, as @milk.md says", "read milk.md"):
        daemon.run(session_id, prompt)
    return session_id


def test_an_answer_leads_to_what_its_request_was_made_of(page: Page, told: str) -> None:
    visit(page, f"/app/sessions/{told}")
    page.get_by_role("link", name="Why this answer").last.click()

    expect(page.get_by_label("Request", exact=True)).to_have_value("3")
    expect(page.get_by_text("of 4 requests")).to_be_visible()
    expect(page.get_by_role("link", name="Why", exact=True)).to_have_attribute("aria-current", "page")
    for kind in ("Instruction", "Context file", "Mention", "Conversation"):
        expect(page.get_by_role("button", name=kind)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("img", name="Made of")).to_be_visible()
    expect(page.get_by_text("Since the request before: 2 parts new, nothing left out.")).to_be_visible()
    page.get_by_role("link", name="The answer in the conversation").click()
    expect(page.locator(".message.is-target")).to_contain_text("milk costs 1.20")


def test_a_part_says_its_file_and_hash_and_shows_its_text(page: Page, told: str) -> None:
    visit(page, f"/app/sessions/{told}/why")

    page.get_by_role("button", name="Mention").click()
    part = page.locator(".part-list .part")
    expect(part).to_have_count(1)
    part.locator("summary").click()

    expect(part).to_contain_text("milk costs 1.20")
    expect(part.locator("dd code", has_text="work/milk.md")).to_be_visible()
    assert len(part.locator(".hash code").inner_text()) == 64


def test_values_of_the_plan_name_the_file_and_line_that_set_them(page: Page, told: str) -> None:
    visit(page, f"/app/sessions/{told}/why")

    mode = page.locator("[data-key='providers[provider-mock].config.mode']")
    expect(mode).to_contain_text("foundation/offline, profile.md:")
    instruction = page.locator("[data-key=instruction]")
    instruction.locator("summary").click()

    expect(instruction).to_contain_text("You work by fixed rules, without a language model")
    expect(instruction).to_contain_text("Instead of")


def test_requests_are_gone_through_by_keyboard(page: Page, told: str) -> None:
    visit(page, f"/app/sessions/{told}/why")
    picker = page.get_by_label("Request", exact=True)
    expect(picker).to_have_value("3")

    page.keyboard.press("[")
    page.keyboard.press("[")
    expect(picker).to_have_value("1")
    page.keyboard.press("]")
    expect(picker).to_have_value("2")

    expect(page.get_by_role("heading", name="Tools offered")).to_be_visible()
    requests = page.request.get(f"/api/v1/sessions/{told}/requests").json()["requests"]
    assert page.url.endswith(f"/why/{requests[2]['request_id']}")


def test_an_injection_names_its_hook_and_a_new_answer_appears(page: Page, daemon: PageDaemon) -> None:
    session_id = session_with_a_hook(daemon)
    visit(page, f"/app/sessions/{session_id}/why")
    expect(page.get_by_role("heading", name="No request yet")).to_be_visible()

    daemon.run(session_id, "Hello")

    part = page.locator(".part[data-origin=injection]")
    expect(part).to_contain_text("hooks-cheese at provider:request")
    part.locator("summary").click()
    expect(part).to_contain_text("Never mention cheese.")


def test_what_a_compaction_left_is_told_apart(page: Page, daemon: PageDaemon) -> None:
    (daemon.directory / "long.md").write_text(f"{'word ' * 20}\n" * 200)
    read = {"tool_calls": [{"name": "read_file", "arguments": {"file_path": "long.md"}}]}
    made = plan(read, "Read.", tools=True, context_window=3000, max_output_tokens=200)
    made["session"]["context"]["config"] = {"max_tokens": 1500}
    body = {"mount_plan": made, "working_dir": str(daemon.directory)}
    session_id = daemon.api.post("/sessions", json=body).raise_for_status().json()["session_id"]
    daemon.run(session_id, "Read long.md")

    visit(page, f"/app/sessions/{session_id}/why")
    expect(page.locator(".part[data-origin=compaction]").first).to_be_visible()

    page.get_by_role("link", name="Its turn in the timeline").click()
    expect(page.get_by_role("button", name="Moment Context compacted")).to_be_visible()
