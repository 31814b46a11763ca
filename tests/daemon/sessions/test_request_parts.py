"""Provider requests as they are stored and read back."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from layered import LOOPS, layered, plan
from recorded import SESSION_ID, Journal
from turns import FunctionTool, answer, calling, echo

from amplifier_core import ChatRequest, HookResult, RateLimitError, ToolResult
from amplifier_core.testing import MockProvider
from amplifierd.exceptions import SessionError
from amplifierd.paths import Paths
from amplifierd.sessions.conversation.message_digest import message_digest
from amplifierd.sessions.recordings.stored_requests import StoredRequest, read_request, requests
from amplifierd.store.file_store import FileStore

SECRET = "sk-ant-api03-" + "A1b2C3d4" * 6


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(Paths.from_environment(tmp_path, environ={}))
    yield store
    await store.close()


async def recorded(
    store: FileStore,
    provider: MockProvider,
    prompts: list[str],
    *tools: Any,
    mount_plan: Any = None,
    prepare: Any = None,
) -> list[StoredRequest]:
    journal = await Journal.begin(store)
    layers = [journal, journal.recorder]
    async with layered(mount_plan or plan(), layers, {"mock": provider}, *tools) as session:
        journal.watch(session)
        if prepare is not None:
            await prepare(session)
        for journal.recorder.turn, prompt in enumerate(prompts, 1):
            with contextlib.suppress(RateLimitError):
                await session.execute(prompt)
            await journal.flush()
    return await requests(store, SESSION_ID)


def kinds(request: StoredRequest) -> list[str]:
    return [stored.part.origin.kind for stored in request.parts]


def texts(request: StoredRequest) -> list[Any]:
    return [stored.message and stored.message["content"] for stored in request.parts]


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_reached_the_provider_is_what_is_read_back(store: FileStore, loop: str) -> None:
    provider = MockProvider([calling(("c1", "echo", {"n": 1}), text="Let me see"), answer("One"), answer("Bye")])

    stored = await recorded(store, provider, ["What is n?", "Thanks"], echo(), mount_plan=plan(loop))

    assert [request.number for request in stored] == [1, 2, 3]
    assert [request.turn for request in stored] == [1, 1, 2]
    for request, sent in zip(stored, provider.requests, strict=True):
        assert [stored.part.hash for stored in request.parts] == [message_digest(message) for message in sent.messages]
        assert all(stored.is_exact for stored in request.parts)
        assert [tool["name"] for tool in request.tools] == ["echo"]
    assert kinds(stored[-1]) == ["message"] * 5
    assert [stored.part.message_id for stored in stored[-1].parts] == ["m1", "m2", "m3", "m4", "m5"]


async def test_a_request_that_adds_two_messages_writes_two(store: FileStore) -> None:
    provider = MockProvider([calling((f"c{n}", "echo", {"n": n})) for n in range(200)])

    await recorded(store, provider, ["Go on"], echo(), mount_plan=plan(max_iterations=200))

    stored = [event["data"] for event in await store.read_events(SESSION_ID) if event["event"] == "request:stored"]
    assert stored[-1]["messages"] > 390
    assert [len(request["add"]) for request in stored[1:199]] == [2] * 198
    assert {request["tools"] for request in stored} == {stored[0]["tools"]}
    assert max(len(str(request)) for request in stored) < 2000


async def test_every_message_has_its_origin(store: FileStore) -> None:
    async def prepare(session: Any) -> None:
        context, hooks = session.coordinator.get("context"), session.coordinator.hooks
        await context.add_message({"role": "system", "content": "You are careful."})
        mentioned = "[Context from @notes.md → /srv/notes.md]\n\nBuy milk."
        await context.add_message({"role": "developer", "content": mentioned})
        agents = {"origin": {"kind": "context", "path": "/srv/AGENTS.md"}}
        await context.add_message({"role": "developer", "content": "Use tabs.", "metadata": agents})

        async def remind(event: str, data: Any) -> HookResult:
            return HookResult(action="inject_context", context_injection="It is late.", ephemeral=True)

        async def note(event: str, data: Any) -> HookResult:
            return HookResult(action="inject_context", context_injection="Remember this.")

        hooks.register("provider:request", remind, name="clock")
        hooks.register("tool:post", note, name="notes")

    provider = MockProvider([calling(("c1", "echo")), answer()])

    first, second = await recorded(store, provider, ["Hello"], echo(), prepare=prepare)

    origins = [stored.part.origin.to_json() for stored in first.parts]
    assert origins == [
        {"kind": "instruction"},
        {"kind": "mention", "sources": ["@notes.md → /srv/notes.md"]},
        {"kind": "context_file", "sources": ["/srv/AGENTS.md"]},
        {"kind": "message"},
        {"kind": "injection", "hook": "clock", "event": "provider:request"},
    ]
    assert texts(first)[0] == "You are careful."
    added = [stored.part.origin.to_json() for stored in second.parts[4:]]
    assert {"kind": "injection", "hook": "notes", "event": "tool:post"} in added
    assert [one.part.message_id for one in second.parts if one.part.origin.hook == "notes"] == ["m4"]
    assert {"kind": "injection", "hook": "clock", "event": "provider:request"} in added


async def test_a_reminder_appended_to_a_result_is_told_from_the_result(store: FileStore) -> None:
    async def prepare(session: Any) -> None:
        async def remind(event: str, data: Any) -> HookResult:
            return HookResult(
                action="inject_context",
                context_injection="Two todos are open.",
                ephemeral=True,
                append_to_last_tool_result=True,
            )

        session.coordinator.hooks.register("tool:post", remind, name="todo")

    tool = FunctionTool("look", lambda _: ToolResult(output="canary-output"))
    provider = MockProvider([calling(("c1", "look")), answer()])

    _, second = await recorded(store, provider, ["Hello"], tool, prepare=prepare)

    last = second.parts[-1]
    assert last.part.origin.to_json() == {"kind": "injection", "hook": "todo", "event": "tool:post"}
    assert last.part.changed == {"before": "", "kept": 13, "after": "\n\nTwo todos are open."}
    assert texts(second)[-1] == "canary-output\n\nTwo todos are open."
    assert last.is_exact


async def test_what_a_context_shortened_points_at_the_whole(store: FileStore) -> None:
    mount_plan = plan(max_iterations=60)
    mount_plan["session"]["context"]["config"] = {"max_tokens": 4000}
    tool = FunctionTool("look", lambda _: ToolResult(output="canary " * 300))
    provider = MockProvider([calling((f"c{n}", "look")) for n in range(30)])

    stored = await recorded(store, provider, ["word " * 100, "Go on"], tool, mount_plan=mount_plan)

    last = stored[-1]
    shortened = [one for one in last.parts if one.part.origin.kind == "compaction" and one.part.role == "tool"]
    assert shortened
    assert all(one.is_exact and one.part.message_id for one in shortened)
    notices = [one for one in last.parts if one.part.origin.kind == "compaction" and one.part.role == "user"]
    assert notices
    assert set(kinds(last)) == {"message", "compaction"}


async def test_tool_output_is_in_the_transcript_only_and_secrets_nowhere_else(store: FileStore) -> None:
    async def prepare(session: Any) -> None:
        context = session.coordinator.get("context")
        await context.add_message({"role": "system", "content": f"The key is {SECRET}."})

    tool = FunctionTool("look", lambda _: ToolResult(output="canary-output"))
    provider = MockProvider([calling(("c1", "look")), answer("It says canary-output.")])

    first, _ = await recorded(store, provider, ["Hello"], tool, prepare=prepare)

    directory = store.workspace(SESSION_ID)
    written = {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}
    assert [name for name, text in written.items() if "canary-output" in text] == ["transcript.jsonl"]
    assert [name for name, text in written.items() if SECRET in text] == []
    system = first.parts[0]
    assert not system.is_exact
    assert system.part.hash == message_digest({"role": "system", "content": f"The key is {SECRET}."})
    assert texts(first)[0].startswith("The key is ")


async def test_responses_are_found_in_the_transcript(store: FileStore) -> None:
    provider = MockProvider([calling(("c1", "echo"), text="Let me see"), answer("Done")])

    first, second = await recorded(store, provider, ["Hello"], echo())

    assert first.response is not None
    assert second.response is not None
    assert first.response.message is not None
    assert [call["id"] for call in first.response.message["tool_calls"]] == ["c1"]
    assert second.response.message is not None
    assert second.response.facts["finish_reason"] == "stop"
    assert second.response.usage["total_tokens"] == 3


async def test_an_error_is_stored_as_what_came_back(store: FileStore) -> None:
    provider = MockProvider([RateLimitError(f"no, {SECRET}", provider="mock"), answer("Now")])

    first, second = await recorded(store, provider, ["Hello", "Again"])

    assert first.response is not None
    assert first.response.error is not None
    assert first.response.error["type"] == "RateLimitError"
    assert first.response.error["retryable"] is True
    assert SECRET not in first.response.error["message"]
    assert second.response is not None
    assert second.response.error is None


async def test_parameters_and_options_are_stored(store: FileStore) -> None:
    provider = MockProvider([answer()])

    (only,) = await recorded(store, provider, ["Hi"], mount_plan=plan(extended_thinking=True, reasoning_effort="high"))

    assert only.parameters == {"reasoning_effort": "high", "extended_thinking": True}


async def test_one_request_is_read_by_its_id(store: FileStore) -> None:
    (only,) = await recorded(store, MockProvider([answer()]), ["Hi"])

    assert await read_request(store, SESSION_ID, only.request_id) == only
    assert only.to_json()["parts"][0]["content"] == {"role": "user", "content": "Hi"}
    with pytest.raises(SessionError, match="has no provider request 'request_0'"):
        await read_request(store, SESSION_ID, "request_0")


async def test_nothing_is_hashed_twice(store: FileStore) -> None:
    journal = await Journal.begin(store)
    async with layered(plan(), [], {"mock": MockProvider()}) as session:
        journal.watch(session)
        request = ChatRequest(messages=[{"role": "user", "content": f"word {n}"} for n in range(100)])
        first = journal.recorder.describe_messages(request)
        longer = ChatRequest(messages=[*request.messages, {"role": "user", "content": "more"}])

        second = journal.recorder.describe_messages(longer)

    assert all(one is other for one, other in zip(first, second, strict=False))
