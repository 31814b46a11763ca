"""Sessions as a crash left them: what is repaired when they are resumed, and that it is said once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent

from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.sessions.conversation.interrupted_turns import InterruptedTurns
from amplifierd.sessions.events.journal import Journal
from amplifierd.sessions.events.tree_events import Event, TreeEvents
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.cursor import Cursor
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord, now

USED = {"input_tokens": 70, "output_tokens": 30, "total_tokens": 100, "cost_usd": "0.01"}


class Remains:
    """A session, and what a killed process wrote of it; events and messages are numbered in their order."""

    def __init__(self, home: Home, session_id: str, events: int = 0) -> None:
        self.home, self.session_id = home, session_id
        self._messages, self._events = 0, events

    async def write(self, messages: Sequence[dict[str, Any]] = (), events: Sequence[tuple[str, Any]] = ()) -> None:
        store = self.home.sessions.runtime.store
        hold = await store.acquire(self.session_id, Holder.of_this_process())
        lines = [{"id": f"m{self._messages + n}", "turn": 1, **message} for n, message in enumerate(messages, 1)]
        told = [
            {"seq": self._events + n, "ts": f"2026-01-01T00:00:{n:02}Z", "event": name, "data": data}
            for n, (name, data) in enumerate(events, 1)
        ]
        self._messages += len(lines)
        self._events += len(told)
        await store.append_messages(hold, lines)
        await store.append_events(hold, told)
        await store.release(hold)

    def told(self, name: str) -> list[Any]:
        return [event["data"] for event in self.home.sessions.events(self.session_id) if event["event"] == name]

    def last(self) -> dict[str, Any]:
        return self.home.sessions.messages(self.session_id)[-1]


@pytest.fixture
async def remains(home: Home, work: Path) -> Remains:
    record = await home.sessions.create(plan=Agent().sections(), working_dir=work)
    return Remains(home, record.session_id)


def prompt(turn: int = 1) -> dict[str, Any]:
    return {"role": "user", "content": "Go", "turn": turn}


def asks(*ids: str, turn: int = 1) -> dict[str, Any]:
    calls = [{"id": call_id, "tool": "read_file", "arguments": {"file_path": "notes.md"}} for call_id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls, "turn": turn}


def begun(turn: int = 1) -> tuple[str, Any]:
    return "user_message:saved", {"turn": turn}


def intent(call_id: str, retry: str = "safe") -> tuple[str, Any]:
    return "tool:intent", {"tool_call_id": call_id, "tool_name": "read_file", "retry": retry}


def outcome(call_id: str, content: str) -> tuple[str, Any]:
    return "tool:outcome", {"tool_call_id": call_id, "content": content}


ASKED, ANSWERED = ("request:stored", {"request_id": "r", "model": "m"}), ("response:stored", {"usage": USED})
DONE = ("execution:done", {"turn": 1, "status": "completed"})


async def test_every_state_of_a_call_is_told_from_its_receipts(remains: Remains) -> None:
    receipts = [intent("a"), outcome("a", "Read."), intent("b"), intent("c", "never")]
    await remains.write([prompt(), asks("a", "b", "c", "d")], [begun(), ASKED, ANSWERED, *receipts])

    async with remains.home.sessions.resume(remains.session_id) as session:
        states = {call.tool_call_id: call.state for call in session.repaired.calls}

    assert states == {"a": "done", "b": "safe", "c": "unknown", "d": "not_begun"}
    answers = {m["tool_call_id"]: m["content"] for m in remains.home.sessions.messages(remains.session_id)[2:6]}
    assert answers["a"] == "Read."
    assert "safe to repeat" in answers["b"]
    assert "not known" in answers["c"]
    assert "not run" in answers["d"]
    assert remains.last()["metadata"] == {"interrupted": True}


async def test_an_id_that_was_used_before_says_nothing_about_a_later_call(remains: Remains) -> None:
    first = [prompt(), asks("call_0"), {"role": "tool", "tool_call_id": "call_0", "content": "Old."}]
    answer = {"role": "assistant", "content": "Done."}
    receipts = [intent("call_0"), outcome("call_0", "Old.")]
    await remains.write([*first, answer], [begun(), ASKED, ANSWERED, *receipts, DONE])
    await remains.write([prompt(2), asks("call_0", turn=2)], [begun(2), ASKED, ANSWERED])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert [call.state for call in session.repaired.calls] == ["not_begun"]


async def test_an_id_that_was_used_earlier_in_the_turn_says_nothing_either(remains: Remains) -> None:
    first = [prompt(), asks("call_0"), {"role": "tool", "tool_call_id": "call_0", "content": "Old."}]
    receipts = [intent("call_0"), outcome("call_0", "Old.")]
    await remains.write([*first, asks("call_0")], [begun(), ASKED, ANSWERED, *receipts, ASKED, ANSWERED])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert [call.state for call in session.repaired.calls] == ["not_begun"]


async def test_what_was_streamed_is_kept_and_marked_and_an_earlier_attempt_is_not(remains: Remains) -> None:
    def piece(text: str, request: str, after: str = "m1") -> tuple[str, Any]:
        return "assistant_message:partial", {"text": text, "after": after, "request_id": request}

    pieces = [piece("Once ", "cut off"), piece("Once upon ", "again"), piece("a time", "again")]
    await remains.write([prompt()], [begun(), ASKED, *pieces])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert session.repaired.partial_answer
    assert remains.last()["content"] == "Once upon a time"
    assert remains.last()["metadata"] == {"partial": True, "interrupted": True}


async def test_what_was_streamed_of_an_answer_that_is_there_is_not_kept_again(remains: Remains) -> None:
    piece = ("assistant_message:partial", {"text": "Once upon", "after": "m1", "request_id": "r"})
    await remains.write([prompt(), asks("a")], [begun(), ASKED, piece, ANSWERED])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert not session.repaired.partial_answer


async def test_what_a_broken_turn_used_is_counted_once(remains: Remains) -> None:
    await remains.write([prompt(), asks("a")], [begun(), ASKED, ANSWERED, intent("a"), ASKED, ANSWERED])

    for _ in range(2):
        async with remains.home.sessions.resume(remains.session_id) as session:
            used = session.record.usage
            assert used is not None
            assert (used["tokens"]["total"], used["cost_usd"], used["tool_calls"], used["turns"]) == (200, "0.02", 1, 1)
            assert used["seconds"] == 5
            assert session.record.usage_tree == used
    assert (session.record.turn_count, session.record.message_count) == (1, 4)


async def test_a_turn_that_ended_before_its_record_was_written_is_counted(remains: Remains) -> None:
    await remains.write([prompt(), {"role": "assistant", "content": "Done."}], [begun(), ASKED, ANSWERED, DONE])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert not session.repaired
        assert session.record.token_usage is not None
        assert (session.record.token_usage["total"], session.record.turn_count) == (100, 1)


async def test_a_repair_that_was_killed_is_reported_by_the_next_one(remains: Remains) -> None:
    stand_in = {
        "role": "tool",
        "tool_call_id": "a",
        "name": "read_file",
        "content": "…",
        "metadata": {"repaired": "safe"},
    }
    closing = {"role": "assistant", "content": "Interrupted.", "metadata": {"interrupted": True}}
    await remains.write([prompt(), asks("a"), stand_in, closing], [begun(), ASKED, ANSWERED, intent("a")])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert [(call.tool_call_id, call.state) for call in session.repaired.calls] == [("a", "safe")]
        assert session.repaired.closed_turn == 1
    async with remains.home.sessions.resume(remains.session_id) as again:
        assert not again.repaired
    assert len(remains.told("session:repaired")) == 1
    assert len(remains.home.sessions.messages(remains.session_id)) == 4


async def test_a_broken_turn_is_told_to_have_ended(remains: Remains) -> None:
    await remains.write([prompt()], [begun(), ASKED])

    assert (await remains.home.sessions.repair(remains.session_id)).closed_turn == 1
    assert not await remains.home.sessions.repair(remains.session_id)
    (done,) = remains.told("execution:done")
    assert (done["turn"], done["status"], done["error"]["code"]) == (1, "failed", "aborted")


async def test_a_turn_whose_answer_is_there_has_completed(remains: Remains) -> None:
    await remains.write([prompt(), {"role": "assistant", "content": "Done."}], [begun(), ASKED, ANSWERED])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert not session.repaired
    (done,) = remains.told("execution:done")
    assert (done["status"], done["response"]) == ("completed", "Done.")


async def test_a_prompt_that_was_stored_and_nothing_else_is_closed(remains: Remains) -> None:
    await remains.write([prompt()])

    async with remains.home.sessions.resume(remains.session_id) as session:
        assert session.repaired.closed_turn == 1
        assert (await session.execute("Go on")).turn == 2


async def test_the_end_of_a_killed_turn_comes_after_all_of_its_pieces_however_many_were_told(
    home: Home, work: Path
) -> None:
    record = await home.sessions.create(plan=Agent().sections(), working_dir=work)
    runtime, shown = home.sessions.runtime, list[Event]()
    hold = await runtime.store.acquire(record.session_id, Holder.of_this_process())
    last = await runtime.store.last_cursor(record.session_id)
    tree = TreeEvents(record.session_id, last.resumed(hold.epoch))
    tree.subscribe(lambda event: shown.append(event) is not None)
    journal = Journal(runtime.store, hold, record, tree, SecretValues())
    await journal.write("user_message:saved", {"turn": 1, "content": "Go"})
    for _ in range(10_050):
        journal.hear_delta("llm:stream_block_delta", {"text": "x"})
    await runtime.store.append_messages(hold, [{"id": "m1", **prompt()}])
    await runtime.store.release(hold)

    await home.sessions.repair(record.session_id)

    seen, done = Cursor.of_event(shown[-1]), home.sessions.events(record.session_id)
    ends = [Cursor.of_line(line) for line in done if line["event"] == "execution:done"]
    assert (seen, len(ends)) == ((hold.epoch, 2, 10_050), 1)
    assert seen is not None
    assert not seen.covers(ends[0])
    assert [line["seq"] for line in done] == [*range(1, len(done) + 1)]


async def test_a_fork_of_a_repaired_session_is_whole(remains: Remains) -> None:
    await remains.write([prompt(), asks("a")], [begun(), ASKED, ANSWERED])
    await remains.home.sessions.repair(remains.session_id)

    forked = await remains.home.sessions.fork(remains.session_id)

    async with remains.home.sessions.resume(forked.session_id) as session:
        assert not session.repaired


async def test_a_context_with_a_file_of_its_own_learns_what_became_of_a_call(home: Home, work: Path) -> None:
    answer = {"text": "It says: {{last_tool_result}}", "repeat": True}
    plan = Agent([{"text": "Hello.", "when": {"call": 1, "contains": "Hi"}}, answer]).sections()
    plan["session"]["context"] = {"module": "context-persistent"}
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        await session.execute("Hi")
    remains = Remains(home, session.session_id, events=len(home.sessions.events(session.session_id)) + 100)
    receipts = [begun(2), ASKED, ANSWERED, intent("a"), outcome("a", "Buy milk.")]
    await remains.write([prompt(2), asks("a", turn=2)], receipts)
    with (home.paths.sessions / session.session_id / "context-messages.jsonl").open("a") as file:
        file.writelines(f"{json.dumps(message)}\n" for message in (prompt(2), asks("a", turn=2)))

    async with home.sessions.resume(session.session_id) as resumed:
        assert [call.state for call in resumed.repaired.calls] == ["done"]
        context = resumed.runner.kernel.session.coordinator.get("context")
        contents = [message["content"] for message in await context.get_messages()]
        assert contents[-4:-1] == ["Go", "", "Buy milk."]
        assert len(contents) == len(home.sessions.messages(session.session_id))


@pytest.mark.parametrize("before", [0, 1])
async def test_a_turn_of_which_only_the_prompt_was_stored_ends_once(remains: Remains, before: int) -> None:
    answered = [prompt(), {"role": "assistant", "content": "Done."}]
    await remains.write([*answered * before, prompt(turn=before + 1)], [begun(), DONE] * before)

    taken = await remains.home.sessions.take_over(remains.session_id)
    assert taken is not None
    async with remains.home.sessions.resume(remains.session_id) as session:
        assert session.repaired.closed_turn == before + 1

    assert [done["turn"] for done in remains.told("execution:done")] == [*range(1, before + 2)]
    assert len(remains.told("session:repaired")) == 1
    assert remains.last()["role"] == "assistant"


async def test_a_turn_that_was_counted_before_its_end_was_told_ends_after_all(remains: Remains) -> None:
    await remains.write([prompt(), {"role": "assistant", "content": "Done."}], [begun(), ASKED, ANSWERED])
    store = remains.home.sessions.runtime.store
    hold = await store.acquire(remains.session_id, Holder.of_this_process())
    await store.update(hold, usage={}, usage_seq=3, turn_count=1, message_count=2)
    await store.release(hold)

    assert await remains.home.sessions.take_over(remains.session_id) is not None
    async with remains.home.sessions.resume(remains.session_id) as session:
        assert not session.repaired

    assert [(done["status"], done["response"]) for done in remains.told("execution:done")] == [("completed", "Done.")]


class WithAgent(FileStore):
    """A store in which an agent of another process says something, just before its root is held by this one."""

    def __init__(self, paths: Paths, root: str) -> None:
        super().__init__(paths)
        self._root = root
        self.said: list[int] = []

    async def acquire(self, session_id: str, holder: Holder, *, take_over: bool = False) -> Hold:
        if session_id == self._root and not self.said:
            self.said.append(20_000)
            ids = {"session_id": "agent", "parent_session_id": session_id, "root_session_id": session_id}
            record = SessionRecord(**ids, working_dir="/", created_at=now())
            event = {"seq": self.said[0], "event": "tool:pre", "data": {}}
            await self.add(NewSession(record, {}, events=[event]), holder)
        return await super().acquire(session_id, holder, take_over=take_over)


async def test_the_end_of_a_turn_gets_a_number_that_no_agent_got_at_the_last_moment(remains: Remains) -> None:
    await remains.write([prompt()], [begun()])
    root, runtime = remains.session_id, remains.home.sessions.runtime
    store = WithAgent(remains.home.paths, root)

    taken = await InterruptedTurns(store, runtime.holder, runtime.announcements).take_over(root)
    await store.close()

    assert taken is not None
    (end,) = [event["seq"] for event in remains.home.sessions.events(root) if event["event"] == "execution:done"]
    assert end > store.said[0]
