"""What a hook's answer does to the session: messages injected into the context."""

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from injections import Context, budget_warnings, injecting

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import ContextInjection, HookResult
from amplifier_core.testing import MockCoordinator


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def limits() -> dict[str, Any]:
    """The session section of the plan, read whenever a limit applies."""
    return {}


@pytest.fixture
def coordinator(context: Context, limits: dict[str, Any]) -> ModuleCoordinator:
    session = SimpleNamespace(session_id="s-1", parent_id=None, config={"session": limits})
    coordinator = ModuleCoordinator(session)
    coordinator.mount_points["context"] = context
    return coordinator


@pytest.mark.parametrize(
    "result",
    [None, {}, {"action": "continue"}, object(), "deny"],
    ids=["None", "an empty dict", "a dict", "a bare object", "a text"],
)
async def test_only_objects_with_an_action_are_processed(coordinator: ModuleCoordinator, result: Any) -> None:
    with pytest.raises(AttributeError):
        await coordinator.process_hook_result(result, "tool:pre")


@pytest.mark.parametrize("action", ["continue", "deny", "modify"])
async def test_other_actions_come_back_as_the_same_object(
    coordinator: ModuleCoordinator, context: Context, action: Any
) -> None:
    result = HookResult(action=action, reason="because", data={"n": 1}, context_injection="not injected")

    assert await coordinator.process_hook_result(result, "tool:pre", "guard") is result
    assert context.messages == []


async def test_an_injection_becomes_a_message_that_says_where_it_came_from(
    coordinator: ModuleCoordinator, context: Context
) -> None:
    result = HookResult(action="inject_context", context_injection="note", context_injection_role="user")

    before = datetime.now(UTC)
    await coordinator.process_hook_result(result, "tool:post", "notes")
    after = datetime.now(UTC)

    [message] = context.messages
    timestamp = message["metadata"].pop("timestamp")
    assert message == {
        "role": "user",
        "content": "note",
        "metadata": {
            "source": "hook",
            "hook_name": "notes",
            "event": "tool:post",
            "requested_role": "user",
            "ephemeral": False,
            "persisted": True,
        },
    }
    assert before <= datetime.fromisoformat(timestamp) <= after
    assert timestamp.endswith("+00:00")


async def test_items_keep_their_own_provenance_and_outrank_the_single_text(
    coordinator: ModuleCoordinator, context: Context
) -> None:
    result = HookResult(
        action="inject_context",
        context_injection="ignored",
        context_injections=[
            ContextInjection(content="first", role="assistant", hook_name="notes", event="tool:pre"),
            ContextInjection(content="second"),
        ],
    )

    await coordinator.process_hook_result(result, "tool:post", "other")

    assert [
        (message["role"], message["content"], message["metadata"]["hook_name"], message["metadata"]["event"])
        for message in context.messages
    ] == [("assistant", "first", "notes", "tool:pre"), ("system", "second", "unknown", "")]


async def test_the_hook_is_unknown_when_nobody_names_it(coordinator: ModuleCoordinator, context: Context) -> None:
    await coordinator.process_hook_result(HookResult(action="inject_context", context_injection="note"), "tool:post")

    assert context.messages[0]["metadata"]["hook_name"] == "unknown"


async def test_what_was_persisted_is_gone_from_the_returned_copy(coordinator: ModuleCoordinator) -> None:
    kept = {
        "data": {"n": 1},
        "reason": "because",
        "approval_prompt": "sure?",
        "approval_options": ["Allow"],
        "approval_timeout": 5.0,
        "approval_default": "allow",
        "suppress_output": True,
        "user_message": "shown",
        "user_message_level": "warning",
        "user_message_source": "notes",
    }
    result = HookResult(
        action="inject_context",
        context_injection="note",
        context_injection_role="user",
        append_to_last_tool_result=True,
        **kept,
    )
    before = result.model_copy(deep=True)

    remainder = await coordinator.process_hook_result(result, "tool:post", "notes")

    assert remainder == HookResult(action="continue", **kept)
    assert remainder is not result
    assert result == before


async def test_ephemeral_items_are_left_to_the_orchestrator(coordinator: ModuleCoordinator, context: Context) -> None:
    result = HookResult(
        action="inject_context",
        context_injections=[
            ContextInjection(content="kept", role="user"),
            ContextInjection(content="a\x00", role="assistant", ephemeral=True, hook_name="notes", event="tool:pre"),
            ContextInjection(content="b", ephemeral=True, append_to_last_tool_result=True),
        ],
        data={"n": 1},
    )

    remainder = await coordinator.process_hook_result(result, "tool:post", "notes")

    assert context.contents == ["kept"]
    assert remainder == HookResult(
        action="inject_context",
        context_injections=[
            ContextInjection(content="a", role="assistant", ephemeral=True, hook_name="notes", event="tool:pre"),
            ContextInjection(content="b", ephemeral=True, append_to_last_tool_result=True),
        ],
        context_injection="a\n\nb",
        context_injection_role="assistant",
        ephemeral=True,
        append_to_last_tool_result=True,
        data={"n": 1},
    )
    assert result.context_injections[1].content == "a\x00"


async def test_a_single_ephemeral_text_gets_its_provenance(coordinator: ModuleCoordinator, context: Context) -> None:
    result = HookResult(action="inject_context", context_injection="note", ephemeral=True)

    remainder = await coordinator.process_hook_result(result, "tool:post", "notes")

    assert remainder.context_injections == [
        ContextInjection(content="note", ephemeral=True, hook_name="notes", event="tool:post")
    ]
    assert (remainder.context_injection, remainder.ephemeral, context.messages) == ("note", True, [])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"context_injection": ""},
        {"context_injection": "\x00\x1f\ud800"},
        {"context_injections": [ContextInjection(content=""), ContextInjection(content="\x07", ephemeral=True)]},
        {"context_injections": [ContextInjection(content="")], "context_injection": "the list counts"},
    ],
    ids=repr,
)
async def test_nothing_to_inject_is_a_continue(
    coordinator: ModuleCoordinator, context: Context, fields: dict[str, Any]
) -> None:
    result = HookResult(action="inject_context", reason="kept", context_injection_role="user", ephemeral=True, **fields)

    remainder = await coordinator.process_hook_result(result, "tool:post")

    assert remainder == HookResult(action="continue", reason="kept")
    assert remainder is not result
    assert context.messages == []


async def test_control_characters_and_lone_surrogates_are_removed(
    coordinator: ModuleCoordinator, context: Context
) -> None:
    text = "a\x00\x08b\x0b\x0c\x0e\x1fc\x7f\x85\x9fd\ud800\udfffe \t\n\r é 😀"

    await coordinator.process_hook_result(injecting(text), "tool:post")

    assert context.contents == ["abcde \t\n\r é 😀"]


async def test_a_context_may_add_messages_synchronously(coordinator: ModuleCoordinator) -> None:
    messages: list[dict[str, Any]] = []
    await coordinator.mount("context", SimpleNamespace(add_message=messages.append))

    await coordinator.process_hook_result(injecting("a", "b"), "tool:post")

    assert [message["content"] for message in messages] == ["a", "b"]


@pytest.mark.parametrize("mounted", [None, object()], ids=["no context", "a context without add_message"])
async def test_without_a_place_for_messages_an_injection_is_dropped(
    coordinator: ModuleCoordinator, mounted: Any
) -> None:
    await coordinator.mount("context", mounted)

    remainder = await coordinator.process_hook_result(injecting("note", reason="kept"), "tool:post")

    assert remainder == HookResult(action="continue", reason="kept")


async def test_an_error_of_the_context_is_the_callers_and_the_tokens_count_all_the_same(
    coordinator: ModuleCoordinator, limits: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(message: dict[str, Any]) -> None:
        raise RuntimeError("full")

    await coordinator.mount("context", SimpleNamespace(add_message=refuse))
    limits["injection_budget_per_turn"] = 1

    with pytest.raises(RuntimeError, match="full"):
        await coordinator.process_hook_result(injecting("four"), "tool:post")
    assert budget_warnings(caplog) == 0
    await coordinator.mount("context", None)
    await coordinator.process_hook_result(injecting("more"), "tool:post")
    assert budget_warnings(caplog) == 1


async def test_every_injection_is_logged(coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="amplifier_core")
    item = ContextInjection(content="12345678", role="user", ephemeral=True, hook_name="notes", event="tool:pre")

    await coordinator.process_hook_result(
        HookResult(action="inject_context", context_injections=[item]), "tool:post", "other"
    )

    [record] = [record for record in caplog.records if record.levelno == logging.INFO]
    message = record.getMessage()
    assert message.startswith("Hook context injection")
    assert all(word in message for word in ("notes", "tool:pre", "8", "user", "2", "True"))


@pytest.mark.parametrize("content", ["note", None])
async def test_a_result_from_an_older_release_has_no_list_of_items(
    coordinator: ModuleCoordinator, context: Context, content: str | None
) -> None:
    fields = HookResult(action="inject_context", context_injection=content, reason="kept").model_dump()
    del fields["context_injections"]

    remainder = await coordinator.process_hook_result(SimpleNamespace(**fields), "tool:post", "notes")

    assert remainder == HookResult(action="continue", reason="kept")
    assert context.contents == [content] * (content is not None)


async def test_an_ephemeral_result_from_an_older_release_becomes_a_new_one(coordinator: ModuleCoordinator) -> None:
    fields = HookResult(action="inject_context", context_injection="note", ephemeral=True).model_dump()
    del fields["context_injections"]

    remainder = await coordinator.process_hook_result(SimpleNamespace(**fields), "tool:post", "notes")

    assert isinstance(remainder, HookResult)
    assert remainder.action == "inject_context"
    assert [(item.content, item.hook_name) for item in remainder.context_injections] == [("note", "notes")]


async def test_a_text_for_one_request_can_be_traced_to_its_hook() -> None:
    coordinator = MockCoordinator()
    hooks = coordinator.hooks

    async def remind(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="It is late.", ephemeral=True)

    hooks.register("provider:request", remind, name="clock")

    await coordinator.process_hook_result(await hooks.emit("provider:request", {}), "provider:request", "loop")

    assert coordinator.find_injector("It is late.") == ("clock", "provider:request")
    assert coordinator.find_injector("It is early.") is None


async def test_only_the_latest_texts_are_remembered() -> None:
    coordinator = MockCoordinator()
    for number in range(300):
        result = HookResult(action="inject_context", context_injection=f"note {number}", ephemeral=True)
        await coordinator.process_hook_result(result, "tool:post", "notes")

    assert coordinator.find_injector("note 0") is None
    assert coordinator.find_injector("note 299") == ("notes", "tool:post")
