"""`amplifier session`: reading and tidying up what was said."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plans import call, plan_file

from amplifierd.exceptions import HoldLostError
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

Say = Callable[..., Any]


@pytest.fixture
def session_id(say: Say, amplifier: Any) -> str:
    """A session with two turns, the second of which changed a file."""
    edit = {"when": {"contains": "Write"}, **call("write_file", file_path="new.txt", content="new\n")}
    plan = plan_file(amplifier.work, [edit, {"when": {"contains": "bought"}, "text": "Milk it is."}, "Written."])
    first = say("run", "--plan", plan, "--name", "Groceries", "-o", "json", "What is to be bought?")
    assert first.code == 0, first.err
    found: str = json.loads(first.out)["session_id"]
    assert say("run", "--resume", found, "Write it down").code == 0
    return found


def shown(say: Say, session_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(say("session", "show", session_id, "--json").out)
    return found


def test_sessions_are_listed_shown_and_found(say: Say, session_id: str) -> None:
    listed = say("session", "list")
    whole = json.loads(say("session", "list", "--here", "--json").out)
    text = say("session", "show", "Groceries").out
    hits = json.loads(say("session", "search", "milk", "--json").out)

    assert session_id.removeprefix("session_")[:8] in listed.out
    assert "Groceries" in listed.out
    assert [each["session_id"] for each in whole] == [session_id]
    assert "What is to be bought?" in text
    assert "● write_file" in text
    assert [hit["session"]["session_id"] for hit in hits] == [session_id]
    assert "Nothing was found" in say("session", "search", "zebra").out


def test_calls_are_shown_however_the_messages_spell_them(say: Say, amplifier: Any, session_id: str) -> None:
    (transcript,) = amplifier.home.rglob("transcript.jsonl")
    messages = [json.loads(line) for line in transcript.read_text().splitlines()]
    in_blocks = [{key: value for key, value in message.items() if key != "tool_calls"} for message in messages]
    transcript.write_text("".join(f"{json.dumps(message)}\n" for message in in_blocks))

    assert "● write_file" in say("session", "show", session_id).out


def test_without_sessions_the_list_says_what_to_type(say: Say) -> None:
    assert "amplifier run" in say("session", "list").out
    assert json.loads(say("session", "list", "--json").out) == []


def test_a_filter_that_nothing_passes_is_not_taken_for_an_empty_home(say: Say, session_id: str) -> None:
    assert say("session", "list", "--status", "failed").out == "No session matches\n"
    assert say("session", "list", "--status", "bogus").code == 2


def test_a_beginning_of_an_id_is_enough_if_it_is_the_only_one(say: Say, session_id: str) -> None:
    say("session", "fork", session_id)

    one = say("session", "show", session_id.removeprefix("session_")[:10])
    several = say("session", "show", "session_")

    assert one.code == 0
    assert (several.code, "matches 2 sessions" in several.err) == (2, True)


def test_a_turn_is_shown_and_undone(say: Say, session_id: str, amplifier: Any) -> None:
    assert "+new" in say("session", "diff", session_id).out

    undone = say("session", "undo", session_id)

    assert (undone.code, (amplifier.work / "new.txt").exists()) == (0, False)
    assert shown(say, session_id)["session"]["turn_count"] == 1
    assert say("session", "undo", session_id, "--files", "--conversation").code == 2


def test_a_fork_goes_its_own_way(say: Say, session_id: str) -> None:
    forked = json.loads(say("session", "fork", session_id, "--turn", "1", "--name", "Other", "--json").out)

    assert (forked["name"], forked["forked_from_turn"], forked["turn_count"]) == ("Other", 1, 1)
    assert shown(say, session_id)["session"]["turn_count"] == 2
    assert "out of range" in say("session", "fork", session_id, "--turn", "9").err


def test_a_session_is_renamed(say: Say, session_id: str) -> None:
    say("session", "rename", session_id, "Shopping")
    assert say("session", "show", "Shopping").code == 0
    say("session", "rename", "Shopping", "")
    assert shown(say, session_id)["session"]["name"] is None


def test_an_exported_session_comes_back_and_a_changed_file_does_not(say: Say, session_id: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.zip"
    assert say("session", "export", session_id, str(file)).code == 0
    assert say("session", "delete", session_id, "--force").code == 0
    assert say("session", "show", session_id).code == 2

    back = json.loads(say("session", "import", str(file), "--json").out)

    assert back["session"]["session_id"] == session_id
    file.write_bytes(b"something else")
    assert say("session", "import", str(file)).code == 1
    assert say("session", "import", str(tmp_path / "none")).code == 2


def test_a_deleted_session_comes_back_and_one_deleted_forever_does_not(say: Say, session_id: str) -> None:
    short = session_id.removeprefix("session_")[:8]
    said = say("session", "delete", session_id, "--force")
    assert (said.code, f"amplifier session restore {short}" in said.out) == (0, True)
    assert say("session", "show", session_id).code == 2
    (listed,) = json.loads(say("session", "list", "--deleted", "--json").out)
    assert (listed["session_id"], bool(listed["deleted_at"])) == (session_id, True)
    assert short in say("session", "list", "--deleted").out
    assert session_id not in say("session", "list", "--json").out

    back = say("session", "restore", short)

    assert (back.code, f"amplifier session resume {short}" in back.out) == (0, True)
    assert say("session", "show", session_id).code == 0
    say("session", "delete", session_id, "--force")
    assert say("session", "delete", "last", "--forever", "--force").code == 0
    gone = say("session", "restore", session_id)
    assert (gone.code, "amplifier session list --deleted" in gone.err) == (2, True)
    assert "no deleted session" in say("session", "list", "--deleted").out


def test_nothing_is_deleted_without_a_word(say: Say, session_id: str) -> None:
    said = say("session", "delete", session_id)

    assert (said.code, "--force" in said.err) == (2, True)
    assert say("session", "show", session_id).code == 0


def test_a_cleanup_spares_what_has_not_ended(say: Say, session_id: str) -> None:
    assert "0 sessions would be removed" in say("session", "cleanup", "--older-than", "0", "--dry-run").out
    assert say("session", "show", session_id).code == 0


def test_a_whole_session_needs_no_repair(say: Say, session_id: str) -> None:
    assert "nothing to repair" in say("session", "repair", session_id).out


def test_a_session_is_taken_from_a_program_that_does_not_let_it_go(say: Say, amplifier: Any, session_id: str) -> None:
    store = FileStore(Paths.from_environment(amplifier.home, environ={}))
    assert "is free" in say("session", "take-over", session_id).out
    hold = asyncio.run(store.acquire(session_id, Holder.of_this_process("another")))

    refused = say("run", "--resume", session_id, "Hello")
    taken = say("session", "take-over", session_id, "--force")

    assert (refused.code, f"amplifier session take-over {session_id}" in refused.err) == (3, True)
    assert (taken.code, "was taken from process" in taken.out) == (0, True)
    with pytest.raises(HoldLostError):
        asyncio.run(store.append_messages(hold, [{"id": "m", "role": "user", "content": "late"}]))
    assert say("run", "--resume", session_id, "Hello").code == 0
    asyncio.run(store.close())


def test_short_ids_are_unique_and_enough_also_beside_the_sessions_of_agents(say: Say, amplifier: Any) -> None:
    script = [
        {"when": {"contains": "Look", "role": "user"}, "text": "Milk."},
        {"when": {"tool": "task"}, "text": "It says milk."},
        {"tool_calls": [call("task", agent="reader", instruction="Look")["tool_calls"][0]] * 2},
    ]
    plan = plan_file(amplifier.work, script, agents={"reader": {"description": "Reads", "instruction": "You read."}})
    session_id = json.loads(say("run", "--plan", plan, "-o", "json", "What do they\nsay?").out)["session_id"]

    rows = [line.split() for line in say("session", "list", "--agents").out.splitlines()[1:]]
    ids = [row[0] for row in rows]
    shown_as = [shown(say, each)["session"]["session_id"] for each in ids]

    assert (len(ids), len(set(shown_as))) == (3, 3)
    short = session_id.removeprefix("session_")[:8]
    assert short in ids
    for typed in (short, short[:6]):
        assert shown(say, typed)["session"]["session_id"] == session_id
    assert shown(say, short)["session"]["first_prompt"] == "What do they say?"
    assert "What do they say?" in say("session", "list").out
