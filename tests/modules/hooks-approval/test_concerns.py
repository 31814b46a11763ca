"""What a call touches is asked about by name, whatever else lets the call pass."""

import asyncio
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount

from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.testing import MockCoordinator
from amplifier_kit.concerns import CONCERN, Concern, PendingCall, find_pending_call, refusal_of

from .conftest import Guard, MountGuard

YES, NO = ApprovalResponse(approved=True), ApprovalResponse(approved=False, reason="not here")
INSTRUCTIONS = Concern("place", "AGENTS.md", "AGENTS.md instructs every later session here")
HOST = Concern("host", "example.org:443", "the address leaves this machine", "https://example.org/?d=1")


class Writer:
    """Writes a file and says which place it is."""

    name = "write_file"
    description = "Writes."
    effects = frozenset({"write"})

    def concerns_of(self, tool_input: dict[str, Any]) -> tuple[Concern, ...]:
        if tool_input.get("fails"):
            raise RuntimeError("no idea")
        path = tool_input.get("file_path", "")
        return (Concern("place", path, f"{path} instructs every later session here"),) if path[:1].isupper() else ()


class Fetcher(Writer):
    """Reads from a host, which alone nobody is asked about."""

    name = "web_fetch"
    effects = frozenset({"network"})

    def concerns_of(self, tool_input: dict[str, Any]) -> tuple[Concern, ...]:
        return (Concern("host", tool_input["host"], "it would be told what is in the address", tool_input["url"]),)


WRITES = [{"tool": "write_file", "pattern": "AGENTS.md", "action": "auto_approve"}]


@pytest.mark.parametrize("config", [{"rules": WRITES}, {"auto_approve": True}])
async def test_a_place_is_asked_about_once_even_where_the_call_is_approved_otherwise(
    mount_guard: MountGuard, config: dict[str, Any]
) -> None:
    guard = await mount_guard(**config)
    provider = guard.answered_by(YES)

    for text in ("one", "two", "three"):
        answer = await guard.judge("write_file", {"file_path": "AGENTS.md", "content": text}, tool_obj=Writer())
        assert answer.action == "continue"

    assert [request.details["content"] for request in provider.requests] == ["one"]


async def test_each_place_is_asked_about_and_an_ordinary_file_is_not(mount_guard: MountGuard) -> None:
    guard = await mount_guard(auto_approve=True)
    provider = guard.answered_by(YES)

    for path in ("AGENTS.md", "notes.md", "CLAUDE.md", "AGENTS.md"):
        assert (await guard.judge("write_file", {"file_path": path}, tool_obj=Writer())).action == "continue"

    assert [request.details["file_path"] for request in provider.requests] == ["AGENTS.md", "CLAUDE.md"]


async def test_a_no_to_a_place_is_no_and_is_asked_again(mount_guard: MountGuard) -> None:
    guard = await mount_guard(auto_approve=True)
    provider = guard.answered_by(NO)

    for _ in range(2):
        assert (await guard.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "deny"
    assert len(provider.requests) == 2


async def test_a_remembered_answer_for_a_directory_does_not_cover_a_place_in_it(mount_guard: MountGuard) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(ApprovalResponse(approved=True, remember=True), NO)

    assert (await guard.judge("write_file", {"file_path": "notes.md"}, tool_obj=Writer())).action == "continue"
    assert (await guard.judge("write_file", {"file_path": "other.md"}, tool_obj=Writer())).action == "continue"
    assert (await guard.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "deny"
    assert len(provider.requests) == 2


async def test_a_rule_that_denies_denies_without_a_question(mount_guard: MountGuard) -> None:
    guard = await mount_guard(rules=[{**WRITES[0], "action": "auto_deny"}])
    provider = guard.answered_by(YES)

    answer = await guard.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())

    assert (answer.action, answer.reason) == ("deny", "Auto-denied by rule")
    assert provider.requests == []


async def test_where_nobody_can_be_asked_a_concern_is_denied(mount_guard: MountGuard) -> None:
    guard = await mount_guard(auto_approve=True)

    assert (await guard.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "deny"
    assert (await guard.judge("write_file", {"file_path": "notes.md"}, tool_obj=Writer())).action == "continue"


async def test_silence_is_no_answer_to_a_concern_whatever_the_default_is(mount_guard: MountGuard) -> None:
    guard = await mount_guard(default_action="continue", auto_approve=True)
    guard.answered_by(ApprovalTimeoutError("late"))

    assert (await guard.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "deny"


async def test_a_tool_that_cannot_say_what_it_touches_is_asked_about_every_time(mount_guard: MountGuard) -> None:
    guard = await mount_guard(auto_approve=True)
    provider = guard.answered_by(YES)

    for _ in range(2):
        await guard.judge("write_file", {"file_path": "notes.md", "fails": True}, tool_obj=Writer())
    assert len(provider.requests) == 2


async def test_a_host_of_a_tool_that_is_not_risky_is_asked_about_and_http_covers_https(mount_guard: MountGuard) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(YES)

    for port in (80, 443, 80, 8443):
        call = {"host": f"example.org:{port}", "url": f"http://example.org:{port}/?d=1"}
        assert (await guard.judge("web_fetch", call, tool_obj=Fetcher())).action == "continue"

    assert [request.details["host"] for request in provider.requests] == ["example.org:80", "example.org:8443"]


async def test_calls_that_wait_for_the_same_question_are_not_asked_about_again(mount_guard: MountGuard) -> None:
    guard = await mount_guard()

    async def after_a_while() -> ApprovalResponse:
        await asyncio.sleep(0.01)
        return YES

    provider = guard.answered_by(after_a_while)
    call = {"host": "example.org:443", "url": "https://example.org/"}

    await asyncio.gather(*(guard.judge("web_fetch", call, tool_obj=Fetcher()) for _ in range(3)))

    assert len(provider.requests) == 1


async def test_the_question_carries_the_danger_in_words_and_the_whole_address(mount_guard: MountGuard) -> None:
    guard = await mount_guard(ask_user_fallback=True)
    seen: list[tuple[str, PendingCall | None]] = []

    async def answer(result: Any, *_: Any) -> Any:
        seen.append((result.approval_prompt, find_pending_call()))
        return result.model_copy(update={"action": "continue"})

    guard.coordinator.process_hook_result = answer  # type: ignore[method-assign]
    gate = guard.coordinator.get_capability("approval.gate")
    for _ in range(2):
        call = {"host": "example.org:443", "url": "https://example.org/?d=1"}
        assert (await gate("web_fetch", call, {"tool_obj": Fetcher()})).approved

    [(prompt, asked)] = seen
    assert "it would be told what is in the address: https://example.org/?d=1" in prompt
    assert asked is not None
    assert [concern.key for concern in asked.concerns] == ["host:example.org:443"]


async def test_what_a_tool_meets_while_it_runs_is_asked_about_once(mount_guard: MountGuard) -> None:
    guard = await mount_guard(auto_approve=True)
    provider = guard.answered_by(YES, NO)

    assert await refusal_of(guard.coordinator, HOST, "web_fetch") is None
    assert await refusal_of(guard.coordinator, HOST, "web_fetch") is None
    assert await refusal_of(guard.coordinator, INSTRUCTIONS, "bash") == "not here"

    assert [request.action for request in provider.requests] == [
        "web_fetch: reach example.org:443",
        "bash: change AGENTS.md",
    ]
    assert [line["response"]["approved"] for line in guard.audit] == [True, False]


async def guard_inside(outer: Guard, **config: Any) -> Guard:
    coordinator = MockCoordinator()
    for name in ("approval.gate", CONCERN):
        coordinator.register_capability(name, outer.coordinator.get_capability(name))
    return Guard(coordinator, await mount(coordinator, {"audit": {"enabled": False}, **config}), outer.audit_file)


async def test_a_child_session_asks_through_its_parent_and_shares_the_answer(mount_guard: MountGuard) -> None:
    outer = await mount_guard(auto_approve=True)
    provider = outer.answered_by(YES)
    inner = await guard_inside(outer, auto_approve=True)

    assert (await inner.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "continue"
    assert await refusal_of(inner.coordinator, HOST, "web_fetch") is None
    assert (await outer.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "continue"
    assert await refusal_of(outer.coordinator, HOST, "web_fetch") is None

    assert len(provider.requests) == 2


async def test_a_child_session_is_denied_what_its_parent_denies(mount_guard: MountGuard) -> None:
    outer = await mount_guard(auto_approve=True)
    outer.answered_by(NO)
    inner = await guard_inside(outer, auto_approve=True)
    inner.answered_by(YES)

    assert (await inner.judge("write_file", {"file_path": "AGENTS.md"}, tool_obj=Writer())).action == "deny"
    assert await refusal_of(inner.coordinator, HOST, "web_fetch") == "not here"


async def test_an_answer_that_is_none_is_a_no(mount_guard: MountGuard) -> None:
    guard = await mount_guard(auto_approve=True)

    async def broken(request: ApprovalRequest) -> Any:
        raise RuntimeError(f"gone: {request.action}")

    guard.answered_by(RuntimeError("gone"))
    assert "gone" in str(await refusal_of(guard.coordinator, HOST, "web_fetch"))
    guard.coordinator.register_capability(CONCERN, broken)
    assert "Approval failed" in str(await refusal_of(guard.coordinator, HOST, "web_fetch"))


async def test_without_a_guard_hosts_are_left_to_the_policy_and_places_stay_as_they_are() -> None:
    coordinator = MockCoordinator()

    assert await refusal_of(coordinator, HOST, "web_fetch") is None
    assert "nobody can be asked" in str(await refusal_of(coordinator, INSTRUCTIONS, "write_file"))
