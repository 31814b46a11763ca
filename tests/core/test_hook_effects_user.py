"""What a hook's answer does at the user's side: questions asked and messages shown."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from injections import Context, Display, injecting

from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import HookResult


class Approvals:
    """Answers every question with the same decision, or raises it; `calls` has the arguments."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision
        self.calls: list[tuple[Any, ...]] = []

    async def request_approval(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        if isinstance(self.decision, BaseException):
            raise self.decision
        return self.decision


class AsyncDisplay(Display):
    async def show_message(self, *arguments: Any) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.shown.append(arguments)


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def coordinator(context: Context) -> ModuleCoordinator:
    coordinator = ModuleCoordinator()
    coordinator.mount_points["context"] = context
    return coordinator


ALLOWED = HookResult(action="continue")


def denied(reason: str) -> HookResult:
    return HookResult(action="deny", reason=reason)


@pytest.mark.parametrize(
    ("decision", "expected", "warns"),
    [
        ("Allow", ALLOWED, False),
        ("allow", ALLOWED, False),
        ("ALLOW ONCE", ALLOWED, False),
        ("Allow always", ALLOWED, False),
        ("Deny", denied("User denied: sure?"), False),
        ("DENY", denied("User denied: sure?"), False),
        ("Yes", denied("User denied: sure?"), True),
        ("", denied("User denied: sure?"), True),
        ("allow everything", denied("User denied: sure?"), True),
        (" allow ", denied("User denied: sure?"), True),
    ],
)
async def test_only_an_answer_of_the_allow_family_allows(
    coordinator: ModuleCoordinator,
    caplog: pytest.LogCaptureFixture,
    decision: str,
    expected: HookResult,
    warns: bool,
) -> None:
    coordinator.approval_system = Approvals(decision)
    question = HookResult(action="ask_user", approval_prompt="sure?", approval_options=["Allow", "Yes", "Deny"])

    assert await coordinator.process_hook_result(question, "tool:pre", "guard") == expected
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warns


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, ("Allow this operation?", ["Allow", "Deny"], 300.0, "deny")),
        ({"approval_prompt": "", "approval_options": []}, ("", [], 300.0, "deny")),
        (
            {
                "approval_prompt": "sure?",
                "approval_options": ["Allow once"],
                "approval_timeout": 1.5,
                "approval_default": "allow",
            },
            ("sure?", ["Allow once"], 1.5, "allow"),
        ),
    ],
    ids=["defaults", "empty but given", "all given"],
)
async def test_the_approval_system_gets_four_arguments(
    coordinator: ModuleCoordinator, fields: dict[str, Any], asked: tuple[Any, ...]
) -> None:
    coordinator.approval_system = approvals = Approvals("Deny")

    result = await coordinator.process_hook_result(HookResult(action="ask_user", **fields), "tool:pre")

    assert approvals.calls == [asked]
    assert result == denied(f"User denied: {asked[0]}")


async def test_an_approval_system_may_answer_synchronously(coordinator: ModuleCoordinator) -> None:
    coordinator.approval_system = SimpleNamespace(request_approval=lambda *arguments: "Allow")

    assert await coordinator.process_hook_result(HookResult(action="ask_user"), "tool:pre") == ALLOWED


async def test_without_an_approval_system_a_question_is_a_denial(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    question = HookResult(action="ask_user", approval_default="allow")

    result = await coordinator.process_hook_result(question, "tool:pre")

    assert result == denied("No approval system available")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("default", "expected"),
    [("allow", ALLOWED), ("deny", denied("Approval timeout - denied by default: sure?"))],
)
async def test_silence_means_the_default(coordinator: ModuleCoordinator, default: Any, expected: HookResult) -> None:
    coordinator.approval_system = Approvals(ApprovalTimeoutError())
    question = HookResult(action="ask_user", approval_prompt="sure?", approval_default=default)

    assert await coordinator.process_hook_result(question, "tool:pre") == expected


@pytest.mark.parametrize("decision", [None, True, 1, ["Allow"]], ids=repr)
async def test_a_decision_must_be_text(coordinator: ModuleCoordinator, decision: Any) -> None:
    coordinator.approval_system = Approvals(decision)

    with pytest.raises(TypeError):
        await coordinator.process_hook_result(HookResult(action="ask_user"), "tool:pre")


@pytest.mark.parametrize("error", [TimeoutError("built in"), RuntimeError("broken"), asyncio.CancelledError("stop")])
async def test_other_errors_of_the_approval_system_are_the_callers(
    coordinator: ModuleCoordinator, error: BaseException
) -> None:
    coordinator.approval_system = Approvals(error)

    with pytest.raises(type(error), match=str(error)):
        await coordinator.process_hook_result(HookResult(action="ask_user"), "tool:pre")


@pytest.mark.parametrize("decision", ["Deny", ApprovalTimeoutError()], ids=["denied", "silence"])
async def test_a_long_prompt_is_cut_in_the_reason(coordinator: ModuleCoordinator, decision: Any) -> None:
    coordinator.approval_system = approvals = Approvals(decision)

    async def reason(prompt: str) -> str | None:
        question = HookResult(action="ask_user", approval_prompt=prompt)
        return (await coordinator.process_hook_result(question, "tool:pre")).reason

    assert (await reason("x" * 200)).endswith(": " + "x" * 200)
    assert (await reason("x" * 201)).endswith(": " + "x" * 200 + "...[truncated]")
    assert approvals.calls[1][0] == "x" * 201


async def test_a_question_does_nothing_else(coordinator: ModuleCoordinator, context: Context) -> None:
    coordinator.approval_system = Approvals("Allow")
    coordinator.display_system = display = Display()
    question = HookResult(
        action="ask_user", user_message="not shown", context_injection="not injected", suppress_output=True
    )

    assert await coordinator.process_hook_result(question, "tool:pre") == ALLOWED
    assert (display.shown, context.messages) == ([], [])


@pytest.mark.parametrize("display", [Display, AsyncDisplay])
@pytest.mark.parametrize("action", ["continue", "deny", "modify", "inject_context"])
async def test_a_message_is_shown_with_its_level_and_source(
    coordinator: ModuleCoordinator, action: Any, display: Callable[[], Display]
) -> None:
    coordinator.display_system = shown_on = display()

    for source in (None, "", "linter"):
        result = HookResult(
            action=action, user_message="look", user_message_level="warning", user_message_source=source
        )
        await coordinator.process_hook_result(result, "tool:pre", "guard")

    assert shown_on.shown == [("look", "warning", f"hook:{source}") for source in ("guard", "", "linter")]


async def test_a_message_is_shown_before_the_context_is_touched(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []
    coordinator.display_system = SimpleNamespace(show_message=lambda *arguments: order.append("shown"))
    await coordinator.mount("context", SimpleNamespace(add_message=lambda message: order.append("added")))

    await coordinator.process_hook_result(injecting("note", user_message="look"), "tool:post")

    assert order == ["shown", "added"]


@pytest.mark.parametrize("message", [None, ""])
async def test_no_message_shows_nothing(coordinator: ModuleCoordinator, message: str | None) -> None:
    coordinator.display_system = display = Display()

    await coordinator.process_hook_result(HookResult(user_message=message), "tool:pre")

    assert display.shown == []


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_an_error_of_the_display_is_logged_and_nothing_more(
    coordinator: ModuleCoordinator, context: Context, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("broken")

    async def fail_later(*arguments: Any) -> None:
        await asyncio.sleep(0)
        fail()

    coordinator.display_system = SimpleNamespace(show_message=fail_later if is_async else fail)

    await coordinator.process_hook_result(injecting("note", user_message="look"), "tool:post")

    assert context.contents == ["note"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_without_a_display_a_message_is_logged_and_cut(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="amplifier_core")

    await coordinator.process_hook_result(HookResult(user_message="x" * 300), "tool:pre", "guard")

    assert "guard" in caplog.text
    assert "x" * 200 in caplog.text
    assert "x" * 201 not in caplog.text


async def test_a_wish_to_suppress_output_is_only_noted(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="amplifier_core")
    result = HookResult(suppress_output=True)

    assert await coordinator.process_hook_result(result, "tool:pre", "guard") is result
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
