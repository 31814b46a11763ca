"""A conversation in the browser: streamed, answered, steered, stopped, branched and taken back."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from amplifierd.exceptions import HoldLostError
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

from .chromium import Complaints
from .page_daemon import PageDaemon
from .sample_sessions import (
    ASKS,
    asking_session,
    calls,
    create,
    delegating_session,
    plan_of,
    transcript_of,
    write_history,
)
from .visits import visit

DOT = b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one dot."""


def show(page: Page, session_id: str) -> Locator:
    """Open a session, and return its conversation."""
    visit(page, f"/app/sessions/{session_id}")
    expect(field(page)).to_be_visible()
    return page.get_by_role("log")


def field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message to the agent")


def say(page: Page, text: str, key: str = "Enter") -> None:
    field(page).fill(text)
    field(page).press(key)


def status(page: Page) -> Locator:
    """Return where the page says what the session does."""
    return page.locator(".session-title .status")


def test_an_answer_is_shown_with_its_thinking_folded_and_its_tools_as_cards(page: Page, daemon: PageDaemon) -> None:
    (daemon.directory / "sea.md").write_text("salt\n")
    looks = {"thinking": "What is in the sea?", **calls("read_file", text="I look.", file_path="sea.md")}
    log = show(page, create(daemon, plan_of(looks, "It is salt."), "Sea"))

    say(page, "what is in the sea")

    expect(log.get_by_text("It is salt.")).to_be_visible()
    expect(log.get_by_text("What is in the sea?", exact=True)).to_be_hidden()
    log.get_by_text("Thinking").click()
    expect(log.get_by_text("What is in the sea?", exact=True)).to_be_visible()
    card = log.locator("tool-card")
    expect(card).to_contain_text("read_file")
    card.locator("summary").click()
    expect(card.get_by_role("region", name="Output")).to_contain_text("salt")
    expect(status(page)).to_have_text("Idle")


def test_messages_and_code_are_copied_and_a_link_leads_to_its_message(page: Page, daemon: PageDaemon) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=daemon.url)
    said = "Use *this*:\n\n```python\nprint(1)\n```"
    session_id = daemon.session(said, name="Copied")
    daemon.run(session_id, "how do I print?")
    log = show(page, session_id)
    messages = log.get_by_role("article")
    prompt, answer = messages.filter(has_text="how do"), messages.filter(has_text="Use")

    def copied_by(button: Locator) -> str:
        button.focus()
        button.press("Enter")
        expect(page.locator(".toast").last).to_contain_text("opied")
        text: str = page.evaluate("navigator.clipboard.readText()")
        return text

    assert copied_by(answer.get_by_role("button", name="Copy text")) == said
    assert copied_by(answer.get_by_role("button", name="Copy code")) == "print(1)\n"
    assert copied_by(prompt.get_by_role("button", name="Copy text")) == "how do I print?"
    prompt.get_by_role("button", name="More for this message").press("Enter")
    address = copied_by(page.get_by_role("menuitem", name="Copy link"))
    visit(page, "/app/")
    page.goto(address)
    expect(page.locator(".message.is-target")).to_contain_text("how do I print?")


def test_steps_are_shown_as_a_list_and_an_edit_as_a_difference(page: Page, daemon: PageDaemon) -> None:
    (daemon.directory / "sum.py").write_text("total = a - b\n")
    steps = [("Read it", "completed"), ("Correct it", "in_progress")]
    todos = [{"content": what, "status": status, "activeForm": what} for what, status in steps]
    plans = calls("todo", action="create", todos=todos)
    reads = calls("read_file", file_path="sum.py")
    edits = calls("edit_file", file_path="sum.py", old_string="a - b", new_string="a + b")
    tools = [{"module": "tool-filesystem"}, {"module": "tool-todo"}]
    log = show(page, create(daemon, plan_of(plans, reads, edits, "Corrected.", tools=tools), "Edit"))

    say(page, "correct it")

    expect(log.get_by_role("list", name="Steps").get_by_role("listitem")).to_have_text(["Read it", "Correct it"])
    expect(log.get_by_role("img", name="under way")).to_be_visible()
    difference = log.get_by_role("group", name="Difference")
    expect(difference.locator('[data-kind="del"]')).to_contain_text("a - b")
    expect(difference.locator('[data-kind="add"]')).to_contain_text("a + b")


def test_a_question_is_answered_in_place(page: Page, daemon: PageDaemon) -> None:
    log = show(page, asking_session(daemon, "answered.txt", "Asks"))
    say(page, "write it")
    expect(status(page)).to_have_text("Waits for approval")
    meter = page.locator("turn-meter")
    expect(meter).to_contain_text(re.compile(r"Waits for approval.* s · \d+ tokens · cost unknown"))
    assert not (daemon.directory / "answered.txt").exists()

    page.get_by_role("region", name="Approval needed").get_by_role("button", name="Allow once").click()

    expect(log.get_by_text("The end:")).to_be_visible()
    expect(page.get_by_role("region", name="Approval needed")).to_have_count(0)
    expect(meter).to_be_hidden()
    assert (daemon.directory / "answered.txt").read_text() == "written\n"


def test_a_question_waits_for_whoever_opens_the_session(page: Page, daemon: PageDaemon) -> None:
    session_id = asking_session(daemon, "waited.txt", "Asks nobody yet")
    daemon.begin(session_id, "write it")
    visit(page, "/app/")
    expect(page.get_by_role("link", name="Waits for approval Asks nobody yet")).to_be_visible()

    log = show(page, session_id)

    expect(log.locator("tool-card")).to_have_count(1)
    page.get_by_role("region", name="Approval needed").get_by_role("button", name="Allow once").click()
    expect(log.get_by_text("The end:")).to_be_visible()


def test_a_denial_carries_its_reason_to_the_agent(page: Page, daemon: PageDaemon) -> None:
    log = show(page, asking_session(daemon, "denied.txt", "Is refused"))
    say(page, "write it")
    question = page.get_by_role("region", name="Approval needed")

    question.get_by_label("Reason for denying").fill("not on a Monday")
    question.get_by_role("button", name="Deny").click()

    expect(log.get_by_text(re.compile("The end:.*not on a Monday", re.DOTALL))).to_be_visible()
    assert not (daemon.directory / "denied.txt").exists()


def test_a_question_is_answered_by_keys_alone(page: Page, daemon: PageDaemon) -> None:
    log = show(page, asking_session(daemon, "by-keys.txt", "Asks a keyboard"))
    say(page, "write it")
    expect(page.get_by_role("region", name="Approval needed")).to_be_visible()

    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Allow once")).to_be_focused()
    page.keyboard.press("Enter")

    expect(log.get_by_text("The end:")).to_be_visible()


def test_a_running_turn_is_steered(page: Page, daemon: PageDaemon) -> None:
    log = show(page, asking_session(daemon, "steered.txt", "Steered", "You said: {{last_user}}"))
    say(page, "begin")
    expect(status(page)).to_have_text("Waits for approval")

    say(page, "look at the second line")
    expect(field(page)).to_have_value("")
    page.get_by_role("button", name="Allow once").click()

    expect(log.get_by_text("You said: look at the second line")).to_be_visible()
    expect(log.get_by_label("You, while it worked")).to_contain_text("look at the second line")


def test_prompts_wait_in_a_queue_and_are_taken_out(page: Page, daemon: PageDaemon) -> None:
    log = show(page, asking_session(daemon, "queued.txt", "Queue", "Answer 1.", "Answer 2."))
    say(page, "first")
    expect(status(page)).to_have_text("Waits for approval")

    for prompt in ("second", "third", "fourth"):
        say(page, prompt, "Control+Enter")
        expect(field(page)).to_have_value("")
    queue = page.get_by_role("region", name="Queued prompts")
    expect(queue.get_by_role("listitem")).to_have_text(["second", "third", "fourth"])
    queue.get_by_role("listitem").nth(1).get_by_role("button", name="Remove from the queue").click()
    expect(queue.get_by_role("listitem")).to_have_text(["second", "fourth"])
    queue.get_by_role("listitem").nth(1).get_by_role("button", name="Take out and edit").click()
    expect(field(page)).to_have_value("fourth")
    page.get_by_role("button", name="Allow once").click()

    expect(log.get_by_text("Answer 2.")).to_be_visible()
    expect(queue).to_have_count(0)


def test_stop_ends_an_answer_keeps_what_was_said_and_gives_back_what_was_typed(page: Page, daemon: PageDaemon) -> None:
    plan = plan_of(" ".join(f"word{number}" for number in range(10_000)), "Never said.")
    plan["providers"][0]["config"]["stream_delay_ms"] = 50
    log = show(page, create(daemon, plan, "Stopped"))
    say(page, "talk")
    expect(log).to_contain_text("word3 ")
    say(page, "be brief")
    expect(field(page)).to_have_value("")
    say(page, "and then this", "Control+Enter")
    expect(page.get_by_role("region", name="Queued prompts")).to_be_visible()

    page.get_by_role("button", name="Stop", exact=True).click()

    expect(log.get_by_text("Stopped.")).to_be_visible()
    expect(status(page)).to_have_text("Idle")
    expect(field(page)).to_have_value("be brief\n\nand then this")
    expect(log.get_by_role("article").last).to_contain_text("word0 word1 word2 word3")
    expect(log.locator(".turn-usage")).not_to_contain_text(" 0 tokens")


def test_a_turn_that_fails_says_why_and_is_run_again(page: Page, daemon: PageDaemon) -> None:
    fails = {"error": {"type": "auth", "message": "the key is not valid"}}
    session_id = create(daemon, plan_of(fails, "You said: {{last_user}}"), "Fails")
    log = show(page, session_id)
    say(page, "go")
    expect(log.get_by_role("alert")).to_contain_text("The key is not valid")
    expect(log.get_by_role("link", name="Provider keys")).to_be_visible()

    log.get_by_role("button", name="Try again").click()

    expect(log.get_by_text("You said: go")).to_be_visible()
    expect(log.get_by_role("alert")).to_have_count(0)
    said = daemon.api.get(f"/sessions/{session_id}/messages").json()["messages"]
    assert [one["role"] for one in said] == ["user", "assistant"]


def test_an_agent_works_inside_the_card_of_its_call(page: Page, daemon: PageDaemon) -> None:
    log = show(page, delegating_session(daemon, "Delegates in the open", asks=True))

    say(page, "ask the reviewer")

    nested = log.get_by_role("group", name="The agent's conversation")
    expect(nested).to_contain_text("read_file")
    page.reload()
    expect(nested).to_contain_text("read_file")
    nested.get_by_role("region", name="Approval needed").get_by_role("button", name="Allow once").click()
    expect(nested).to_contain_text("Nothing to complain of.")
    expect(log.get_by_text("The reviewer is content.")).to_be_visible()
    nested.get_by_role("link", name="Open as a session").click()
    expect(page.get_by_role("heading", name="reviewer")).to_be_visible()


def test_a_turn_can_be_joined_while_it_runs(page: Page, daemon: PageDaemon, new_tab: Callable[[], Page]) -> None:
    words = {"text": " ".join(f"word{number}" for number in range(60))}
    plan = plan_of(words)
    plan["providers"][0]["config"]["stream_delay_ms"] = 50
    session_id = create(daemon, plan, "Joined late")
    log = show(page, session_id)
    say(page, "count")
    expect(log).to_contain_text("word8")

    other = show(new_tab(), session_id)

    expect(other).to_contain_text("word0 word1 word2")
    expect(other).to_contain_text("word59")
    expect(log).to_contain_text("word59")


def test_two_thousand_words_a_second_leave_the_page_usable(page: Page, daemon: PageDaemon) -> None:
    plan = plan_of(" ".join(f"word{number}" for number in range(40_000)))
    plan["providers"][0]["config"]["stream_delay_ms"] = 0.5
    log = show(page, create(daemon, plan, "Talks fast"))
    say(page, "talk")
    expect(log).to_contain_text("word2000 ")

    field(page).press_sequentially("a draft")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.keyboard.press("Control+.")

    expect(log.get_by_text("Stopped.")).to_be_visible()
    expect(status(page)).to_have_text("Idle")
    expect(field(page)).to_have_value("a draft")
    expect(log).not_to_contain_text("word39999")


def test_an_answer_that_is_stored_before_its_turn_ends_is_shown_once(page: Page, daemon: PageDaemon) -> None:
    speaks_slowly = {"module": "loop-streaming", "config": {"stream_delay": 60}}  # after it has stored what it says
    plan = plan_of("Stored already.", session={"orchestrator": speaks_slowly, "context": {"module": "context-simple"}})
    session_id = create(daemon, plan, "Ends late")
    log = show(page, session_id)
    say(page, "go")
    expect(log.get_by_role("article")).to_contain_text(["go", "Stored already."])

    page.reload()

    expect(status(page)).to_have_text("Working")
    expect(log.get_by_text("Stored already.")).to_have_count(1)
    daemon.api.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).raise_for_status()


def test_files_of_the_directory_are_named_with_completion(page: Page, daemon: PageDaemon) -> None:
    (daemon.directory / "harbour/boats").mkdir(parents=True)
    (daemon.directory / "harbour/boats/gull.md").write_text("white\n")
    log = show(page, daemon.session("You said: {{last_user}}", name="Mentions"))

    field(page).press_sequentially("look at @har")
    expect(page.get_by_role("option", name="harbour", exact=True)).to_be_visible()
    field(page).press("ArrowDown")
    field(page).press("Enter")
    expect(page.get_by_role("option", name="harbour/boats")).to_be_visible()
    field(page).press_sequentially("boats/g")
    expect(page.get_by_role("option", name="harbour/boats/gull.md")).to_be_visible()
    field(page).press("ArrowDown")
    field(page).press("Tab")
    expect(field(page)).to_have_value("look at @harbour/boats/gull.md ")
    expect(page.get_by_role("listbox", name="Files")).to_be_hidden()
    field(page).press("Enter")

    expect(log.get_by_text("You said: look at @harbour/boats/gull.md")).to_be_visible()


def test_a_draft_survives_a_reload(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session(name="Drafts")
    show(page, session_id)
    field(page).press_sequentially("not finished")
    page.wait_for_function("id => localStorage.getItem(`amplifier.draft.${id}`)?.includes('finished')", arg=session_id)

    page.reload()

    expect(field(page)).to_have_value("not finished")


def test_an_edited_prompt_branches_and_leaves_the_session_as_it_was(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("One.", "Two.", "Three: {{last_user}}", name="Trunk")
    for prompt in ("first", "second"):
        daemon.run(session_id, prompt)
    log = show(page, session_id)
    prompt = log.get_by_role("article").filter(has_text="second")

    prompt.hover()
    prompt.get_by_role("button", name="Edit and branch").click()
    page.get_by_role("dialog").get_by_label("Prompt").fill("another second")
    page.get_by_role("button", name="Branch", exact=True).click()

    expect(page.get_by_role("heading", name="Trunk (branch)")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("another second")
    expect(page.get_by_role("log")).to_contain_text("first")
    said = [one["content"] for one in daemon.api.get(f"/sessions/{session_id}/messages").json()["messages"]]
    assert "second" in said
    assert "another second" not in said


def test_the_first_prompt_branches_into_a_session_of_the_same_plan(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("You said: {{last_user}}", name="Root")
    daemon.run(session_id, "first")
    expect(show(page, session_id).get_by_text("You said: first")).to_be_visible()

    page.keyboard.press("Escape")
    page.keyboard.press("e")
    page.get_by_role("dialog").get_by_label("Prompt").fill("another first")
    page.keyboard.press("Control+Enter")

    expect(page.get_by_role("heading", name="Root (branch)")).to_be_visible()
    expect(page.get_by_role("log").get_by_role("article")).to_contain_text(["another first", "You said: another first"])


LONG_PROMPT = f"make a file{' and think about it' * 40}"


def made_a_file(daemon: PageDaemon, name: str) -> tuple[str, Path]:
    """Return a session whose turn made a file, and the directory it is in, beside one that was there before."""
    project = daemon.directory / name
    project.mkdir()
    (project / "kept.txt").write_text("as it was\n")
    daemon.api.post("/trust", json={"directory": str(project)}).raise_for_status()
    writes = calls("write_file", file_path="made.txt", content="new\n")
    body = {"mount_plan": plan_of(writes, "Made."), "working_dir": str(project), "name": name}
    session_id = daemon.api.post("/sessions", json=body).raise_for_status().json()["session_id"]
    daemon.run(session_id, LONG_PROMPT)
    assert (project / "made.txt").exists()
    return session_id, project


def undo_the_last_turn(page: Page, session_id: str) -> None:
    expect(show(page, session_id).get_by_text("Made.", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(page.get_by_role("dialog")).to_contain_text("added: made.txt")
    page.get_by_role("dialog").get_by_role("button", name="Undo").click()


def test_a_turn_is_undone_in_files_and_conversation(page: Page, daemon: PageDaemon) -> None:
    session_id, project = made_a_file(daemon, "undone")

    undo_the_last_turn(page, session_id)

    expect(page.get_by_text("Nothing said yet")).to_be_visible()
    expect(field(page)).to_have_value(LONG_PROMPT)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    assert [file.name for file in project.iterdir()] == ["kept.txt"]


def test_what_others_changed_since_is_undone_only_when_that_is_meant(page: Page, daemon: PageDaemon) -> None:
    session_id, project = made_a_file(daemon, "changed-since")
    (project / "made.txt").write_text("by somebody else\n")

    undo_the_last_turn(page, session_id)

    question = page.get_by_role("dialog", name="Files changed since")
    expect(question).to_contain_text("made.txt")
    assert (project / "made.txt").read_text() == "by somebody else\n"
    question.get_by_role("button", name="Undo anyway").click()
    expect(page.get_by_text("Nothing said yet")).to_be_visible()
    assert [file.name for file in project.iterdir()] == ["kept.txt"]


def test_what_was_allowed_always_is_not_asked_again(page: Page, daemon: PageDaemon) -> None:
    writes = [calls("write_file", file_path=f"always-{number}.txt", content="x") for number in (1, 2)]
    log = show(page, create(daemon, plan_of(*writes, "Both written.", hooks=[ASKS]), "Asks once"))
    say(page, "write both")

    page.get_by_role("region", name="Approval needed").get_by_role("button", name="Allow always").click()

    expect(log.get_by_text("Both written.")).to_be_visible()
    assert (daemon.directory / "always-2.txt").exists()


def test_a_picture_is_attached_and_pictures_of_an_answer_are_shown(page: Page, daemon: PageDaemon) -> None:
    session_id = create(daemon, plan_of("It is a dot."), "Pictures")
    kinds = ("image/png", "image/svg+xml")
    pictures = [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": DOT.decode()}} for kind in kinds
    ]
    drawn = {"id": "msg_drawn", "timestamp": "2026-01-01T00:00:00.000000Z", "turn": 1}
    said = {**drawn, "role": "assistant", "content": [{"type": "text", "text": "I drew it."}, *pictures]}
    transcript_of(daemon, session_id).write_text(f"{json.dumps(said)}\n")
    log = show(page, session_id)
    answer = log.get_by_role("article").filter(has_text="I drew it.")
    expect(answer.get_by_role("img", name="Image of the conversation")).to_have_js_property("naturalWidth", 1)
    expect(answer).to_contain_text("An image that this page does not show (image/svg+xml).")

    file = {"name": "dot.png", "mimeType": "image/png", "buffer": base64.b64decode(DOT)}
    page.locator("message-composer input[type=file]").set_input_files(file)
    expect(page.locator("message-composer").get_by_role("img")).to_be_visible()
    say(page, "what is this")

    expect(log.get_by_text("It is a dot.")).to_be_visible()
    sent = log.get_by_role("article", name="You").get_by_role("img", name="Image of the conversation")
    expect(sent).to_have_js_property("naturalWidth", 1)


def test_what_a_turn_used_is_told_also_when_nobody_watched_it(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("Done.", name="Not watched")
    daemon.run(session_id, "go")

    log = show(page, session_id)

    expect(log.locator(".turn-usage")).to_contain_text(re.compile(r"\d+ tokens · cost unknown"))


def test_a_browser_without_shared_workers_is_live_too(stranger: Page, daemon: PageDaemon) -> None:
    stranger.add_init_script("delete window.SharedWorker")
    stranger.goto(daemon.login_link())
    expect(stranger.get_by_role("list", name="Sessions", exact=True)).to_be_visible()
    session_id = create(daemon, plan_of("Heard."), "Without a worker")
    stranger.get_by_role("main").get_by_role("link", name="Without a worker").click()
    expect(field(stranger)).to_be_visible()

    daemon.begin(session_id, "say it")

    expect(stranger.get_by_role("log").get_by_text("Heard.")).to_be_visible()


def test_a_link_leads_to_its_message_however_old(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session(name="Long past")
    write_history(daemon, session_id, turns=120)

    visit(page, f"/app/sessions/{session_id}?message=msg_000003_3")

    expect(page.locator(".message.is-target")).to_be_in_viewport()
    expect(page.locator(".message.is-target")).to_contain_text("Answer 3.")


def test_a_long_conversation_opens_at_its_end_and_grows_upwards(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session(name="Ten thousand messages")
    write_history(daemon, session_id, turns=2500)

    log = show(page, session_id)

    expect(log.get_by_text("Answer 2500.", exact=True)).to_be_in_viewport()
    assert log.locator(".turn").count() < 100
    log.evaluate("element => { element.scrollTop = 0 }")
    expect(log.get_by_text("Answer 2475.", exact=True)).to_have_count(1)


def test_messages_are_walked_by_keys(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("First answer.", "Second answer.", name="Walked")
    for prompt in ("one", "two"):
        daemon.run(session_id, prompt)
    log = show(page, session_id)
    expect(log.get_by_text("Second answer.")).to_be_visible()

    page.keyboard.press("Escape")
    for _ in range(2):
        page.keyboard.press("k")

    expect(log.get_by_role("article").filter(has_text="two")).to_be_focused()
    page.keyboard.press("i")
    expect(field(page)).to_be_focused()


def test_a_session_that_becomes_tainted_says_so_above_its_conversation(page: Page, daemon: PageDaemon) -> None:
    look = {"tool_calls": [{"name": "bash", "arguments": {"command": "echo https://news.example/ ~/diary"}}]}
    bash = {"module": "tool-bash", "config": {"sandbox": "off"}}
    session_id = create(daemon, plan_of(look, "Done.", tools=[bash], hooks=[ASKS]), "Reads too much")
    show(page, session_id)
    expect(page.get_by_text("tainted", exact=True)).to_have_count(0)

    daemon.run(session_id, "Look")

    expect(page.get_by_text("tainted", exact=True)).to_be_visible()
    assert daemon.api.get(f"/sessions/{session_id}").raise_for_status().json()["tainted"] is True


def _awaited(work: Coroutine[Any, Any, Any]) -> Any:
    """Run something beside the event loop of the browser."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


def test_a_session_that_another_program_holds_is_taken_over_when_that_is_confirmed(
    page: Page, daemon: PageDaemon, complaints: Complaints
) -> None:
    complaints.expect("status of 409")
    session_id = create(daemon, plan_of("It is mine."), "Held")
    store = FileStore(Paths.from_environment(daemon.directory.parent / "home", environ={}))
    late = _awaited(store.acquire(session_id, Holder.of_this_process("command"), take_over=True))
    log = show(page, session_id)

    say(page, "whose is it")
    page.get_by_role("button", name="Take over…").click()
    question = page.get_by_role("dialog", name="Take over session?")
    expect(question).to_contain_text("(command)")
    question.get_by_role("button", name="Take over").click()

    expect(log.get_by_text("It is mine.")).to_be_visible()
    with pytest.raises(HoldLostError):
        _awaited(store.append_messages(late, [{"id": "late"}]))
    _awaited(store.close())
