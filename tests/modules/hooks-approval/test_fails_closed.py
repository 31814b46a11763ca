"""Every way in which the guard can fail ends with the tool not running."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amplifier_module_hooks_approval import ApprovalHook

from amplifier_core import HookRegistry, HookResult
from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.testing import MockCoordinator, MockTool

YES = ApprovalResponse(approved=True)
PERMISSIVE = {"default_action": "continue", "default_timeout": 0.05}
MAKE = {"tool_name": "bash", "tool_input": {"command": "make"}, "tool_call_id": "call-1"}


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def nothing_is_logged() -> Iterator[None]:
    """For text that not even the report of a test run can hold."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def raise_after_a_while(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


def raising(error: BaseException) -> Callable[..., Any]:
    return lambda *args: raise_after_a_while(error)


RAISED = {
    "an exception": RuntimeError("broken"),
    "an exception without text": RuntimeError(),
    "an exception that cannot be printed": UnprintableError(),
    "a time-out of its own": TimeoutError("network"),
    "a cancellation of its own": asyncio.CancelledError(),
    "an exit": SystemExit(0),
}
MALFORMED = {
    "nothing": None,
    "true": True,
    "text": "yes",
    "a dict": {"approved": True},
    "a class": ApprovalResponse,
    "an object that looks like one": type("Response", (), {"approved": True, "reason": None, "remember": False})(),
    "a yes in words": ApprovalResponse.model_construct(approved="yes", reason=None, remember=False),
    "a one": ApprovalResponse.model_construct(approved=1, reason=None, remember=False),
    "no verdict": ApprovalResponse.model_construct(),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "after a while"])
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
async def test_a_provider_that_raises_is_a_denial(mount_guard: Any, error: BaseException, at_once: bool) -> None:
    guard = await mount_guard(**PERMISSIVE)
    guard.answered_by(error if at_once else raising(error))

    verdict = await guard.judge_command("make")

    assert verdict.action == "deny"
    assert verdict.reason.startswith("Approval system error: ")
    assert guard.events == ["approval:required", "approval:denied"]
    assert [(line["source"], line["response"]["approved"]) for line in guard.audit] == [("error", False)]


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "after a while"])
async def test_an_interrupt_is_passed_on_and_the_call_does_not_run(mount_guard: Any, at_once: bool) -> None:
    guard = await mount_guard(**PERMISSIVE)
    guard.coordinator.hooks.register("tool:pre", lambda *args: pytest.fail("the call went on"), name="later")
    guard.answered_by(KeyboardInterrupt() if at_once else raising(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        await guard.judge_command("make")


async def test_a_provider_that_raises_text_nobody_can_encode_is_a_denial(
    mount_guard: Any, nothing_is_logged: None
) -> None:
    guard = await mount_guard()
    guard.answered_by(ValueError("half a pair: \ud800."))

    verdict = await guard.judge_command("make")

    assert (verdict.action, verdict.reason) == ("deny", "Approval system error: half a pair: .")


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_answer_is_a_denial(mount_guard: Any, answer: Any) -> None:
    guard = await mount_guard(**PERMISSIVE)
    guard.answered_by(lambda: asyncio.sleep(0, answer))

    verdict = await guard.judge_command("make")

    assert verdict.action == "deny"
    assert verdict.reason.startswith("Approval system error: ")


@pytest.mark.parametrize(
    "response",
    [
        ApprovalResponse.model_construct(approved=False, reason=7, remember="yes"),
        ApprovalResponse.model_construct(approved=False, reason="\ud800", remember=None),
    ],
)
async def test_a_denial_with_malformed_details_is_a_denial(mount_guard: Any, response: ApprovalResponse) -> None:
    guard = await mount_guard()
    guard.answered_by(response, YES)

    assert (await guard.judge_command("make")).action == "deny"
    assert (await guard.judge_command("make")).action == "continue"


@pytest.mark.parametrize("provider", [object(), "provider", type("P", (), {"request_approval": lambda *args: YES})()])
async def test_something_that_is_no_provider_is_a_denial(mount_guard: Any, provider: Any) -> None:
    guard = await mount_guard(**PERMISSIVE)
    guard.coordinator.get_capability("approval.register_provider")(provider)

    assert (await guard.judge_command("make")).action == "deny"


async def test_silence_is_a_denial_by_default(mount_guard: Any) -> None:
    guard = await mount_guard(default_timeout=0.05)
    guard.answered_by(asyncio.Event().wait)

    verdict = await guard.judge_command("make")

    assert (verdict.action, verdict.reason) == ("deny", "Approval request timed out")


async def test_a_provider_that_reports_silence_itself_is_a_denial_by_default(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(ApprovalTimeoutError())

    assert (await guard.judge_command("make")).reason == "Approval request timed out"


async def test_an_approval_that_comes_too_late_is_a_denial(mount_guard: Any) -> None:
    guard = await mount_guard(default_timeout=0.05)

    async def ignore_the_deadline() -> ApprovalResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return YES
        raise AssertionError

    guard.answered_by(ignore_the_deadline)

    assert (await guard.judge_command("make")).reason == "Approval request timed out"


async def judged_while_cancelled(guard: Any, provider: Any) -> asyncio.Task[HookResult]:
    """Cancel the turn as soon as the provider is asked."""
    task = asyncio.create_task(guard.judge_command("make"))
    await provider.is_asked.wait()
    task.cancel()
    await asyncio.wait([task])
    return task


async def test_a_turn_that_is_cancelled_during_the_question_ends_with_a_denial_on_record(mount_guard: Any) -> None:
    guard = await mount_guard(**PERMISSIVE)
    guard.coordinator.hooks.register("tool:pre", lambda *args: pytest.fail("the call went on"), name="later")

    task = await judged_while_cancelled(guard, guard.answered_by(asyncio.Event().wait))

    assert task.cancelled()
    assert guard.events == ["approval:required", "approval:denied"]
    assert [(line["source"], line["response"]["approved"]) for line in guard.audit] == [("error", False)]


async def test_a_provider_that_approves_although_the_turn_is_cancelled_is_not_heard(mount_guard: Any) -> None:
    guard = await mount_guard()

    async def approve_anyway() -> ApprovalResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return YES
        raise AssertionError

    task = await judged_while_cancelled(guard, guard.answered_by(approve_anyway))

    assert task.cancelled()
    assert guard.events == ["approval:required", "approval:denied"]


async def test_a_turn_that_is_cancelled_while_it_waits_for_its_question_asks_nobody(mount_guard: Any) -> None:
    guard = await mount_guard()
    release = asyncio.Event()

    async def answer() -> ApprovalResponse:
        await release.wait()
        return YES

    provider = guard.answered_by(answer)
    first = asyncio.create_task(guard.judge_command("make a"))
    second = asyncio.create_task(guard.judge_command("make b"))
    await provider.is_asked.wait()
    await asyncio.sleep(0)

    second.cancel()
    await asyncio.wait([second])
    release.set()

    assert second.cancelled()
    assert (await first).action == "continue"
    assert len(provider.requests) == 1


async def test_a_handler_that_is_cancelled_outside_of_the_kernel_denies() -> None:
    hook = ApprovalHook({"audit": {"enabled": False}})

    is_asked = asyncio.Event()

    class Provider:
        async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
            is_asked.set()
            await asyncio.Event().wait()
            return YES

    hook.register_provider(Provider())
    task = asyncio.create_task(hook.handle_tool_pre("tool:pre", MAKE))
    await is_asked.wait()
    task.cancel()

    assert (await task).action == "deny"


@pytest.mark.parametrize("immediate", [True, False], ids=["immediate", "graceful"])
async def test_in_a_turn_that_was_asked_to_stop_nobody_is_asked(mount_guard: Any, immediate: bool) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(YES)

    await guard.coordinator.request_cancel(immediate=immediate)
    verdict = await guard.judge_command("make")

    assert (verdict.action, provider.requests) == ("deny", [])


async def test_an_approval_in_a_turn_that_was_asked_to_stop_meanwhile_is_a_denial(mount_guard: Any) -> None:
    guard = await mount_guard()

    async def answer() -> ApprovalResponse:
        await guard.coordinator.request_cancel(immediate=True)
        return YES

    guard.answered_by(answer)

    assert (await guard.judge_command("make")).action == "deny"


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
async def test_a_policy_that_raises_demands_approval(mount_guard: Any, error: BaseException) -> None:
    guard = await mount_guard(policy_driven_only=True)

    def needs_check(name: str) -> bool:
        raise error

    guard.coordinator.register_capability("approval.needs_check", needs_check)

    assert (await guard.judge("read_file")).action == "deny"


@pytest.mark.parametrize("required", ["read_file", 7, object()])
async def test_a_policy_that_is_not_a_list_of_tools_demands_approval(mount_guard: Any, required: Any) -> None:
    guard = await mount_guard(policy_driven_only=True)
    guard.coordinator.session_state["require_approval_tools"] = required

    assert (await guard.judge("list_files")).action == "deny"


async def test_a_tool_that_cannot_be_looked_at_is_denied(mount_guard: Any) -> None:
    class Tool(MockTool):
        @property
        def require_approval(self) -> bool:
            raise RuntimeError("broken")

    guard = await mount_guard()
    await guard.coordinator.mount("tools", Tool("read_file"))

    assert (await guard.judge("read_file")).action == "deny"


@pytest.mark.parametrize(
    "data", [None, [], "bash", {}, {"tool_name": None}, {"tool_name": ""}, {"tool_name": ["bash"]}]
)
async def test_an_event_that_names_no_tool_is_denied(data: Any) -> None:
    hook = ApprovalHook({"policy_driven_only": True})

    assert (await hook.handle_tool_pre("tool:pre", data)).action == "deny"


@pytest.mark.parametrize("name", ["bash\ud800", "write_file"])
async def test_input_that_cannot_be_shown_is_denied(mount_guard: Any, name: str) -> None:
    guard = await mount_guard(high_risk_tools=[name])
    circular: dict[str, Any] = {}
    circular["self"] = circular

    assert (await guard.judge(name, circular)).action == "deny"


@pytest.mark.parametrize("broken", ["approval:required", "approval:granted", "approval:denied"])
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
async def test_a_registry_that_cannot_announce_the_decision_is_a_denial(error: BaseException, broken: str) -> None:
    class Registry(HookRegistry):
        async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
            if event == broken:
                raise error
            return HookResult()

    hook = ApprovalHook({"audit": {"enabled": False}}, hooks=Registry())
    approves = broken != "approval:denied"

    class Provider:
        async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
            return ApprovalResponse(approved=approves)

    hook.register_provider(Provider())

    assert (await hook.handle_tool_pre("tool:pre", MAKE)).action == "deny"


async def test_an_approval_that_could_not_be_announced_is_taken_back_in_the_audit_file(tmp_path: Any) -> None:
    class Registry(HookRegistry):
        async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
            if event == "approval:granted":
                raise RuntimeError("broken")
            return HookResult()

    file = tmp_path / "audit.jsonl"
    hook = ApprovalHook({"auto_approve": True, "audit": {"file": str(file)}}, hooks=Registry())

    assert (await hook.handle_tool_pre("tool:pre", MAKE)).action == "deny"
    assert ['"approved": true' in line for line in file.read_text().splitlines()] == [True, False]


async def test_a_log_that_fails_is_no_way_around_the_guard(mount_guard: Any) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("the log is broken")

    guard = await mount_guard()
    guard.answered_by(RuntimeError("broken"))
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if "hooks_approval" in name]
    assert loggers
    for logger in loggers:
        logger.addFilter(refuse)
    try:
        verdict = await guard.judge_command("make")
    finally:
        for logger in loggers:
            logger.removeFilter(refuse)

    assert verdict.action == "deny"


async def test_a_coordinator_that_has_nothing_to_offer_is_no_way_around_the_guard() -> None:
    hook = ApprovalHook({"audit": {"enabled": False}}, coordinator=object())

    assert (await hook.handle_tool_pre("tool:pre", MAKE)).action == "deny"
    assert (await hook.handle_tool_pre("tool:pre", {"tool_name": "read_file"})).action == "continue"


async def test_an_abandoned_question_can_be_closed() -> None:
    hook = ApprovalHook({"audit": {"enabled": False}}, coordinator=MockCoordinator())

    class Provider:
        async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
            await asyncio.Event().wait()
            return YES

    hook.register_provider(Provider())
    handler = hook.handle_tool_pre("tool:pre", MAKE)
    handler.send(None)

    handler.close()

    with pytest.raises(RuntimeError, match="reuse"):
        handler.send(None)
