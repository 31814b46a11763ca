"""What a hook's answer does to the session: messages injected into the context, and how many of them."""

import asyncio
import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import ContextInjection, HookResult
from amplifier_core.testing import MockCoordinator


class Context:
    """Keeps messages; `add_message` is a coroutine function."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.messages.append(message)

    @property
    def contents(self) -> list[str]:
        return [message["content"] for message in self.messages]


class Display:
    def __init__(self) -> None:
        self.shown: list[tuple[Any, ...]] = []

    def show_message(self, *arguments: Any) -> None:
        self.shown.append(arguments)


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


def injecting(*contents: str, **fields: Any) -> HookResult:
    items = [ContextInjection(content=content) for content in contents]
    return HookResult(action="inject_context", context_injections=items, **fields)


def heard_violations(coordinator: ModuleCoordinator) -> list[dict[str, Any]]:
    """Return a list that fills with the policy violations the coordinator reports."""
    heard: list[dict[str, Any]] = []

    def hear(event: str, data: dict[str, Any]) -> None:
        del data["timestamp"]
        heard.append(data)

    coordinator.hooks.register("policy:violation", hear)
    return heard


def budget_warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(
        record.levelno == logging.WARNING and record.getMessage().startswith("Warning: Hook injection budget exceeded")
        for record in caplog.records
    )


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


@pytest.mark.parametrize(
    ("limit", "content", "is_allowed"),
    [
        ({}, "x" * 10_240, True),
        ({}, "é" * 5_120, True),
        ({}, "\x00" * 20_000 + "x" * 10_240, True),
        ({"injection_size_limit": 10_240}, "x" * 10_241, False),
        ({"injection_size_limit": 10_240}, "é" * 5_120 + "x", False),
        ({"injection_size_limit": 4}, "😀", True),
        ({"injection_size_limit": 3}, "😀", False),
        ({"injection_size_limit": 0}, "x", False),
        ({"injection_size_limit": 0}, "", True),
        ({"injection_size_limit": None}, "x" * 1_000_000, True),
    ],
    ids=[
        "ten kibibytes",
        "two bytes a character",
        "what is removed does not count",
        "one byte more",
        "two bytes a character and one more",
        "four bytes",
        "four bytes where three are allowed",
        "none allowed",
        "none allowed and none given",
        "unlimited",
    ],
)
async def test_the_size_of_an_injection_is_limited_in_bytes(
    coordinator: ModuleCoordinator,
    context: Context,
    limits: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    limit: dict[str, Any],
    content: str,
    is_allowed: bool,
) -> None:
    limits.update(limit)
    result = HookResult(action="inject_context", context_injection=content)

    if is_allowed:
        await coordinator.process_hook_result(result, "tool:post", "notes")
        assert context.contents == ([content.replace("\x00", "")] if content else [])
    else:
        with pytest.raises(ValueError, match=f"^Context injection exceeds {coordinator.injection_size_limit} bytes$"):
            await coordinator.process_hook_result(result, "tool:post", "notes")
        assert context.messages == []
        assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("is_ephemeral", [False, True], ids=["persistent", "ephemeral"])
async def test_one_item_that_is_too_large_prevents_every_effect(
    coordinator: ModuleCoordinator,
    context: Context,
    limits: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    is_ephemeral: bool,
) -> None:
    coordinator.display_system = display = Display()
    violations = heard_violations(coordinator)
    limits.update(injection_size_limit=8, injection_budget_per_turn=2)
    result = injecting("12345678", "123456789", user_message="shown")
    result.context_injections[1].ephemeral = is_ephemeral

    with pytest.raises(ValueError, match="Context injection exceeds 8 bytes"):
        await coordinator.process_hook_result(result, "tool:post")
    assert (context.messages, display.shown, violations) == ([], [], [])

    await coordinator.process_hook_result(injecting("12345678"), "tool:post")
    assert budget_warnings(caplog) == 0  # so the refused injection was not counted


@pytest.mark.parametrize("is_ephemeral", [False, True], ids=["persistent", "ephemeral"])
async def test_the_default_limit_leaves_out_what_is_too_large_and_says_so(
    coordinator: ModuleCoordinator,
    context: Context,
    limits: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    is_ephemeral: bool,
) -> None:
    limits.update(injection_budget_per_turn=1)
    violations = heard_violations(coordinator)
    result = injecting("small", "x" * 10_241, "last")
    too_large = result.context_injections[1]
    too_large.ephemeral, too_large.hook_name, too_large.event = is_ephemeral, "notes", "tool:post"

    remainder = await coordinator.process_hook_result(result, "tool:post")

    assert (context.contents, remainder) == (["small", "last"], HookResult(action="continue"))
    facts = {"hook_name": "notes", "event": "tool:post", "size": 10_241, "limit": 10_240}
    assert violations == [{"reason": "injection_size_limit", **facts}]
    assert [record.levelno for record in caplog.records if record.levelno == logging.ERROR] == [logging.ERROR]
    assert budget_warnings(caplog) == 1  # for the last one; what was left out does not count


@pytest.mark.parametrize(
    ("budget", "contents", "warnings"),
    [
        ({}, ["x" * 10_000] * 4, 0),
        ({}, ["x" * 10_000] * 4 + ["four"], 1),
        ({"injection_budget_per_turn": 1}, ["1234567"], 0),
        ({"injection_budget_per_turn": 1}, ["12345678"], 1),
        ({"injection_budget_per_turn": 1}, ["😀😀😀😀"], 0),
        ({"injection_budget_per_turn": 0}, ["123"], 0),
        ({"injection_budget_per_turn": 0}, ["1234", "1234"], 2),
        ({"injection_budget_per_turn": None}, ["x" * 10_000] * 50, 0),
    ],
    ids=[
        "ten thousand tokens",
        "one token more",
        "a token is four characters",
        "two tokens",
        "characters and not bytes",
        "less than a token",
        "no budget at all",
        "unlimited",
    ],
)
async def test_more_tokens_than_the_budget_of_the_turn_are_a_warning_only(
    coordinator: ModuleCoordinator,
    context: Context,
    limits: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    budget: dict[str, Any],
    contents: list[str],
    warnings: int,
) -> None:
    limits.update(budget)

    await coordinator.process_hook_result(injecting(*contents), "tool:post")

    assert budget_warnings(caplog) == warnings
    assert context.contents == contents


async def test_a_new_turn_has_a_new_budget(
    coordinator: ModuleCoordinator, limits: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    limits["injection_budget_per_turn"] = 2

    async def inject(**fields: Any) -> None:
        result = HookResult(action="inject_context", context_injection="12345678", **fields)
        await coordinator.process_hook_result(result, "tool:post")

    await inject(ephemeral=True)
    assert budget_warnings(caplog) == 0
    await inject()
    assert budget_warnings(caplog) == 1
    coordinator.reset_turn()
    await inject()
    assert budget_warnings(caplog) == 1
    await inject()
    assert budget_warnings(caplog) == 2


async def test_limits_are_read_when_they_apply(
    coordinator: ModuleCoordinator, context: Context, limits: dict[str, Any]
) -> None:
    limits["injection_size_limit"] = 1
    with pytest.raises(ValueError, match="exceeds 1 bytes"):
        await coordinator.process_hook_result(injecting("12"), "tool:post")

    limits["injection_size_limit"] = 2
    await coordinator.process_hook_result(injecting("12"), "tool:post")

    assert context.contents == ["12"]


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
