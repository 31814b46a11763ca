"""How much hooks may inject: the size of one injection, and the tokens of a turn."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from injections import Context, Display, budget_warnings, injecting

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import HookResult


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


def heard_violations(coordinator: ModuleCoordinator) -> list[dict[str, Any]]:
    """Return a list that fills with the policy violations the coordinator reports."""
    heard: list[dict[str, Any]] = []

    def hear(event: str, data: dict[str, Any]) -> None:
        del data["timestamp"]
        heard.append(data)

    coordinator.hooks.register("policy:violation", hear)
    return heard


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
