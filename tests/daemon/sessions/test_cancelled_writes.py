"""Cancelled and failing writes: what was done stays done, and what is not stored is not counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call
from stored_sessions import new_session

from amplifier_core import ToolResult
from amplifier_core.utils.tool_messages import calls_in, results_in
from amplifierd.exceptions import OutcomeUnknownError, SessionError, StoreFullError, StoreUnavailableError
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.sessions.conversation.transcript import Transcript
from amplifierd.sessions.events.journal import Journal
from amplifierd.sessions.events.tree_events import TreeEvents
from amplifierd.sessions.layers.budget_layer import BudgetLayer
from amplifierd.sessions.layers.calls import ToolCall
from amplifierd.sessions.layers.receipts import INTENT, Receipts
from amplifierd.sessions.layers.tree_budget import TreeBudget
from amplifierd.sessions.layers.uncounted_usage import used_in
from amplifierd.sessions.layers.usage import Usage
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import Message, StoredEvent


class Tool:
    name = "note"


SAID = "the key is sk-ant-api03-" + "a1B2c3D4" * 10


async def returned(call: ToolCall) -> ToolResult:
    return ToolResult(output=SAID)


@pytest.mark.parametrize("failure", [asyncio.CancelledError(), StoreUnavailableError("it was closed")])
async def test_the_result_of_a_tool_counts_whatever_becomes_of_its_receipt(failure: BaseException) -> None:
    written: list[str] = []

    async def write(event: str, data: Mapping[str, Any], **options: Any) -> None:
        written.append(event)

    async def put_parts(parts: Mapping[str, bytes]) -> None:
        raise failure

    asked = ToolCall("note", Tool(), "c1", {}, run=returned)

    result = await Receipts(write, write, put_parts, SecretValues()).tool_call(asked, returned)

    assert (result.output, written) == (SAID, [INTENT])


@pytest.mark.parametrize("event", ["response:stored", "tool:intent", "budget:warning"])
@pytest.mark.parametrize("times", [1, 2])
async def test_usage_counts_what_the_stored_events_say_whichever_of_them_cannot_be_stored(
    home: Home, work: Path, monkeypatch: pytest.MonkeyPatch, event: str, times: int
) -> None:
    store = home.sessions.runtime.store
    append, refused = store.try_append_events, list[str]()

    def refuse(hold: Hold, events: Iterable[StoredEvent]) -> bool:
        lines = list(events)
        if len(refused) < times and any(line["event"] == event for line in lines):
            refused.append(event)
            raise StoreFullError("no room")
        return append(hold, lines)

    reading = call("read_file", file_path="notes.md")
    plan = Agent([reading, "One.", reading, "Two."]).sections()
    shown: list[dict[str, Any]] = []
    async with home.sessions.open(plan=plan, working_dir=work, limits={"tool_calls": 2}) as session:
        session.subscribe(lambda event: shown.append(event) or False)
        monkeypatch.setattr(store, "try_append_events", refuse)
        results = [await session.execute("First"), await session.execute("Second")]

    record, events = await store.read(session.session_id), await store.read_events(session.session_id)
    counted, stored = Usage.from_json(record.usage), used_in(events)
    assert refused
    assert counted.tokens == stored.tokens
    assert (counted.tool_calls, counted.turns) == (stored.tool_calls, stored.turns)
    assert {model: used.tokens for model, used in counted.by_model.items() if used.tokens.total} == {
        model: used.tokens for model, used in stored.by_model.items()
    }
    assert Usage.from_json(record.usage_tree).tokens == stored.tokens
    assert sum(result.usage["tokens"]["total"] for result in results) == stored.tokens.total
    numbers = {line["seq"] for line in events}
    assert {one["sequence"] for one in shown if one["sequence"] is not None} <= numbers


@pytest.mark.parametrize("failing", range(1, 6))
async def test_every_result_answers_a_stored_call_whichever_message_cannot_be_stored(
    home: Home, work: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    store = home.sessions.runtime.store
    append, given = store.append_messages, list[str]()

    async def refuse(hold: Hold, messages: Iterable[Message], **options: Any) -> None:
        lines = list(messages)
        given.extend(line["role"] for line in lines)
        if len(given) == failing:
            raise StoreFullError("no room")
        await append(hold, lines, **options)

    reading = call("read_file", file_path="notes.md")
    script = [reading, "One.", reading, "Two.", "Three."]
    async with home.sessions.open(plan=Agent(script).sections(), working_dir=work) as session:
        monkeypatch.setattr(store, "append_messages", refuse)
        for prompt in ("First", "Second"):
            with suppress(StoreFullError):  # a prompt that cannot be stored is not taken
                await session.execute(prompt)
        assert (await session.execute("Third")).status == "completed"

    messages, record = await store.read_messages(session.session_id), await store.read(session.session_id)
    assert len(given) > failing
    assert [one.id for line in messages for one in calls_in(line)] == [
        result.call_id for line in messages for result in results_in(line) or ()
    ]
    assert (record.message_count, record.turn_count) == (len(messages), messages[-1]["turn"])


@pytest.mark.parametrize(("failure", "counted"), [(StoreFullError("no room"), 0), (OutcomeUnknownError("lost"), 1)])
async def test_a_call_counts_unless_it_is_known_that_its_intent_is_not_stored(
    tmp_path: Path, failure: SessionError, counted: int
) -> None:
    class Failing(FileStore):
        def try_append_events(self, hold: Hold, events: Iterable[StoredEvent]) -> bool:
            raise failure

    store, new = Failing(Paths.from_environment(tmp_path, environ={})), new_session("s1")
    hold = await store.create(new, Holder.of_this_process("test"))
    journal = Journal(store, hold, new.record, TreeEvents("s1"), SecretValues())
    tree = TreeBudget()
    budget = BudgetLayer(tree, journal.write_soon)
    receipts = Receipts(
        journal.write, journal.write_soon, partial(store.put_parts, hold), SecretValues(), budget.take_back_call
    )

    with pytest.raises(type(failure)):
        await budget.tool_call(
            ToolCall("note", Tool(), "c1", {}, run=returned), lambda call: receipts.tool_call(call, returned)
        )

    assert tree.used.tool_calls == budget.used.tool_calls == counted
    await store.close()


async def test_a_message_that_was_stored_is_counted_although_its_writer_was_cancelled(tmp_path: Path) -> None:
    class Late(FileStore):
        async def append_messages(self, *args: Any, **options: Any) -> None:
            await super().append_messages(*args, **options)
            raise asyncio.CancelledError  # as a store does that ends what it has begun

    store = Late(Paths.from_environment(tmp_path, environ={}))
    hold = await store.create(new_session("s1"), Holder.of_this_process("test"))
    transcript = Transcript(store, hold)

    with pytest.raises(asyncio.CancelledError):
        await transcript.add({"role": "user", "content": "Hello"})

    assert transcript.count == len(await store.read_messages("s1")) == 1
    assert transcript.last_id == (await store.read_messages("s1"))[0]["id"]
    await store.close()
