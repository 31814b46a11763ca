"""A cancellation that comes while something is being written undoes nothing that was done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import new_session

from amplifier_core import ToolResult
from amplifierd.exceptions import OutcomeUnknownError, StoreFullError, StoreUnavailableError
from amplifierd.paths import Paths
from amplifierd.sessions.conversation.transcript import Transcript
from amplifierd.sessions.layers.budget_layer import BudgetLayer
from amplifierd.sessions.layers.calls import ToolCall
from amplifierd.sessions.layers.receipts import INTENT, Receipts
from amplifierd.sessions.layers.tree_budget import TreeBudget
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder


class Tool:
    name = "note"


SAID = "the key is sk-ant-api03-" + "a1B2c3D4" * 10


async def returned(call: ToolCall) -> ToolResult:
    return ToolResult(output=SAID)


@pytest.mark.parametrize("failure", [asyncio.CancelledError(), StoreUnavailableError("it was closed")])
async def test_the_result_of_a_tool_counts_whatever_becomes_of_its_receipt(failure: BaseException) -> None:
    written: list[str] = []

    async def write(event: str, data: Mapping[str, Any], *, lasting: bool = False) -> None:
        written.append(event)

    async def put_parts(parts: Mapping[str, bytes]) -> None:
        raise failure

    call = ToolCall("note", Tool(), "c1", {}, run=returned)

    result = await Receipts(write, write, put_parts, SecretValues()).tool_call(call, returned)

    assert (result.output, written) == (SAID, [INTENT])


@pytest.mark.parametrize(("failure", "counted"), [(StoreFullError("no room"), 0), (OutcomeUnknownError("lost"), 1)])
async def test_a_call_counts_unless_it_is_known_that_its_intent_is_not_stored(failure: Exception, counted: int) -> None:
    async def fail(event: str, data: Mapping[str, Any], *, lasting: bool = False) -> None:
        raise failure

    async def put_parts(parts: Mapping[str, bytes]) -> None: ...

    tree = TreeBudget()
    budget = BudgetLayer(tree, fail)
    receipts = Receipts(fail, fail, put_parts, SecretValues(), budget.take_back_call)

    with pytest.raises(type(failure)):
        await budget.tool_call(
            ToolCall("note", Tool(), "c1", {}, run=returned), lambda call: receipts.tool_call(call, returned)
        )

    assert tree.used.tool_calls == budget.used.tool_calls == counted


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
