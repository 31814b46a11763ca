"""Which calls are guarded, who decides on them, and what everybody is told."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_hooks_approval import ApprovalHook

from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.testing import EventRecorder, MockTool

YES = ApprovalResponse(approved=True)
NO = ApprovalResponse(approved=False)
REMEMBERED_YES = ApprovalResponse(approved=True, remember=True)
REMEMBERED_NO = ApprovalResponse(approved=False, reason="never", remember=True)
CONTINUATIONS = ("; x", "& x", "| x", "< x", "> x", "\nx", "\rx", "`x`", " $(x)", " $x", " (x)", " \\x")


@pytest.mark.parametrize("command", ["pwd", "ls -1 src", "echo ok"])
async def test_harmless_commands_are_approved_and_prompt_once_more_follows_them(mount_guard: Any, command: str) -> None:
    guard = await mount_guard()
    assert (await guard.judge_command(command)).action == "continue"
    provider = guard.answered_by(NO)

    verdicts = [await guard.judge_command(command + more) for more in CONTINUATIONS]

    assert {verdict.action for verdict in verdicts} == {"deny"}
    assert len(provider.requests) == len(CONTINUATIONS)


async def test_a_command_too_long_to_be_understood_prompts_whatever_the_rules_say(mount_guard: Any) -> None:
    guard = await mount_guard(auto_approve=True)
    provider = guard.answered_by(NO)

    assert (await guard.judge_command(f"echo {'x' * 60_000}")).action == "continue"
    assert (await guard.judge_command(f"echo {'x' * 70_000}")).action == "deny"
    assert len(provider.requests) == 1


async def test_a_command_whose_name_begins_like_an_allowed_one_prompts(mount_guard: Any) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(YES)

    assert (await guard.judge_command("lsof")).action == "continue"
    assert [request.action for request in provider.requests] == ["Execute: lsof"]


@pytest.mark.parametrize("hooks", [EventRecorder(), SimpleNamespace(register=None)], ids=["emits only", "cannot emit"])
async def test_it_decides_whatever_the_coordinators_hooks_can_do(hooks: Any) -> None:
    guard = ApprovalHook({"audit": {"enabled": False}}, coordinator=SimpleNamespace(hooks=hooks))

    verdict = await guard.handle_tool_pre("tool:pre", {"tool_name": "bash", "tool_input": {"command": "pwd"}})

    assert verdict.action == "continue"
    if isinstance(hooks, EventRecorder):
        assert [event for event, _ in hooks.events] == ["approval:required", "approval:granted"]


async def test_without_a_provider_what_would_prompt_is_denied(mount_guard: Any) -> None:
    guard = await mount_guard()

    verdict = await guard.judge_command("make")

    assert (verdict.action, verdict.reason) == ("deny", "No approval provider available")


async def test_write_file_prompts_and_read_file_does_not(mount_guard: Any) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(YES)

    await guard.judge("write_file", {"file_path": "src/a.py"})
    await guard.judge("read_file", {"file_path": "src/a.py"})

    assert [request.tool_name for request in provider.requests] == ["write_file"]
    assert guard.events == ["approval:required", "approval:granted"]


async def test_policy_driven_only_without_a_policy_lets_bash_pass_without_any_event(mount_guard: Any) -> None:
    guard = await mount_guard(policy_driven_only=True)

    assert (await guard.judge_command("rm -rf /")).action == "continue"
    assert (guard.events, guard.audit) == ([], [])


@pytest.mark.parametrize("config", [{"policy_driven_only": True}, {}], ids=["policy only", "policy too"])
@pytest.mark.parametrize("source", ["capability", "async capability", "set", "list"])
async def test_a_policy_can_demand_approval_of_any_tool(mount_guard: Any, config: Any, source: str) -> None:
    guard = await mount_guard(**config)

    async def later(name: str) -> bool:
        return name == "read_file"

    match source:
        case "capability":
            guard.coordinator.register_capability("approval.needs_check", lambda name: name == "read_file")
        case "async capability":
            guard.coordinator.register_capability("approval.needs_check", later)
        case "set":
            guard.coordinator.session_state["require_approval_tools"] = {"read_file"}
        case "list":
            guard.coordinator.session_state["require_approval_tools"] = ["read_file"]

    assert (await guard.judge("read_file")).action == "deny"
    assert (await guard.judge("list_files")).action == "continue"


@pytest.mark.parametrize(
    "traits", [{"require_approval": True}, {"metadata": {"requires_approval": True}}], ids=["attribute", "metadata"]
)
async def test_a_tool_can_demand_approval_itself(mount_guard: Any, traits: dict[str, Any]) -> None:
    guard = await mount_guard()
    tool = MockTool("deploy")
    vars(tool).update(traits)
    await guard.coordinator.mount("tools", tool)

    assert (await guard.judge("deploy")).action == "deny"
    assert (await guard.judge("other", tool_obj=SimpleNamespace(**traits))).action == "deny"
    assert (await guard.judge("other")).action == "continue"


async def test_the_configuration_says_which_tools_need_approval(mount_guard: Any) -> None:
    guard = await mount_guard(
        high_risk_tools=["launch"],
        tools={
            "deploy": {"require_approval": True},
            "launch": {"require_approval": False},
            "bash": {"require_approval": False},
        },
    )

    assert (await guard.judge("deploy")).action == "deny"
    assert (await guard.judge("launch")).action == "continue"
    assert (await guard.judge("write_file")).action == "continue"
    assert (await guard.judge_command("make")).action == "deny"


@pytest.mark.parametrize(
    ("tool_name", "tool_input", "action", "risk_level"),
    [
        ("bash", {"command": "make all"}, "Execute: make all", "high"),
        ("bash", {"command": "sudo make"}, "Execute: sudo make", "critical"),
        ("write_file", {"path": "a", "content": "sudo"}, "Execute write_file", "medium"),
        ("run", {"command": "mkfs x"}, "Execute run", "critical"),
    ],
)
async def test_the_provider_is_told_what_is_at_stake(
    mount_guard: Any, tool_name: str, tool_input: dict[str, Any], action: str, risk_level: str
) -> None:
    guard = await mount_guard(default_timeout="30")
    provider = guard.answered_by(YES)

    await guard.judge(tool_name, tool_input)

    assert provider.requests == [
        ApprovalRequest(tool_name=tool_name, action=action, details=tool_input, risk_level=risk_level, timeout=30.0)
    ]


async def test_a_provider_cannot_change_what_the_tool_gets(mount_guard: Any) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(YES)
    tool_input = {"path": "a", "options": {"mode": "x"}}

    await guard.judge("write_file", tool_input)
    provider.requests[0].details["options"]["mode"] = "changed"

    assert tool_input == {"path": "a", "options": {"mode": "x"}}


async def test_a_denying_provider_denies_with_its_reason(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(ApprovalResponse(approved=False, reason="not on a friday"), NO)

    first, second = await guard.judge_command("make"), await guard.judge_command("make")

    assert (first.action, first.reason) == ("deny", "not on a friday")
    assert (second.action, second.reason) == ("deny", "User denied approval")


async def test_everybody_hears_of_the_question_and_of_the_answer(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(ApprovalResponse(approved=True, reason="fine"), NO)

    await guard.judge_command("make")
    await guard.judge_command("make")

    told = [
        (event, {key: value for key, value in data.items() if key not in ("timestamp", "session_id", "parent_id")})
        for event, data in guard.recorder.events
    ]
    required = {"tool_name": "bash", "action": "Execute: make", "risk_level": "high", "tool_call_id": "call-1"}
    assert told == [
        ("approval:required", required),
        ("approval:granted", {"tool_name": "bash", "reason": "fine", "tool_call_id": "call-1"}),
        ("approval:required", required),
        ("approval:denied", {"tool_name": "bash", "reason": "User denied approval", "tool_call_id": "call-1"}),
    ]


@pytest.mark.parametrize(
    ("default_action", "outcome", "event"),
    [("continue", "continue", "approval:granted"), ("deny", "deny", "approval:denied")],
)
async def test_a_hanging_provider_is_answered_for_by_the_default_action(
    mount_guard: Any, default_action: str, outcome: str, event: str
) -> None:
    guard = await mount_guard(default_timeout=0.05, default_action=default_action)
    guard.answered_by(asyncio.Event().wait)

    verdict = await guard.judge_command("make")

    assert verdict.action == outcome
    assert guard.recorder.events[-1][0] == event
    assert guard.recorder.events[-1][1]["reason"] == "Approval request timed out"
    assert guard.audit[0]["source"] == "timeout"
    assert guard.audit[0]["response"]["approved"] is (outcome == "continue")


async def test_two_parallel_calls_are_asked_one_at_a_time(mount_guard: Any) -> None:
    guard = await mount_guard()
    at_once, most = itertools.count(), []

    async def answer() -> ApprovalResponse:
        nonlocal running
        running += 1
        most.append(running)
        await asyncio.sleep(0)
        running -= 1
        return ApprovalResponse(approved=next(at_once) == 0)

    running = 0
    provider = guard.answered_by(answer)

    verdicts = await asyncio.gather(guard.judge_command("make a"), guard.judge_command("make b"))

    assert [verdict.action for verdict in verdicts] == ["continue", "deny"]
    assert (len(provider.requests), most) == (2, [1, 1])


@pytest.mark.parametrize(("answer", "outcome"), [(REMEMBERED_YES, "continue"), (REMEMBERED_NO, "deny")])
async def test_of_two_parallel_calls_the_second_is_not_asked_when_the_first_answer_is_to_be_remembered(
    mount_guard: Any, answer: ApprovalResponse, outcome: str
) -> None:
    guard = await mount_guard()

    async def answer_later() -> ApprovalResponse:
        await asyncio.sleep(0)
        return answer

    provider = guard.answered_by(answer_later)

    verdicts = await asyncio.gather(guard.judge_command("git add a"), guard.judge_command("git add b"))

    assert [verdict.action for verdict in verdicts] == [outcome, outcome]
    assert len(provider.requests) == 1
    assert [line["source"] for line in guard.audit] == ["provider", "remembered"]


async def test_an_approved_git_push_covers_only_itself(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(REMEMBERED_YES, NO)

    assert (await guard.judge_command("git push")).action == "continue"
    assert (await guard.judge_command("git push")).action == "continue"
    assert (await guard.judge_command("git push origin")).action == "deny"
    assert (await guard.judge_command("rm -rf build")).action == "deny"
    assert (await guard.judge_command("git push; rm -rf build")).action == "deny"


async def test_an_answer_to_more_than_one_simple_command_is_remembered_for_exactly_that_text(mount_guard: Any) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(REMEMBERED_YES)

    commands = ("make all > log", "make all > log", "make all  > log", "make all && rm x", "make all")
    for command in commands:
        await guard.judge_command(command)

    assert [request.details["command"] for request in provider.requests] == [commands[0], *commands[2:]]


async def test_an_approval_in_src_does_not_cover_the_directory_above(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(REMEMBERED_YES, NO)

    outcomes = [
        (await guard.judge("write_file", {"file_path": path})).action
        for path in ("src/a.py", "src/b.py", "./src/../src/c.py", "a.py", "src/../a.py", "src/deep/a.py", "/src/a.py")
    ]

    assert outcomes == ["continue", "continue", "continue", "deny", "deny", "deny", "deny"]


async def test_an_approval_for_one_file_tool_does_not_cover_another(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(REMEMBERED_YES, NO)

    assert (await guard.judge("write_file", {"path": "a.py"})).action == "continue"
    assert (await guard.judge("write_file", {"path": "b.py"})).action == "continue"
    assert (await guard.judge("edit_file", {"path": "a.py"})).action == "deny"


async def test_a_tool_that_may_do_anything_is_remembered_for_the_same_input_only(mount_guard: Any) -> None:
    guard = await mount_guard(high_risk_tools=["deploy", "launch"])
    guard.answered_by(REMEMBERED_YES, NO)

    assert (await guard.judge("deploy", {"to": "stage"})).action == "continue"
    assert (await guard.judge("deploy", {"to": "stage"})).action == "continue"
    assert (await guard.judge("deploy", {"to": "production"})).action == "deny"
    assert (await guard.judge("launch", {"to": "stage"})).action == "deny"


async def test_a_tool_that_only_reads_and_writes_is_remembered_by_name(mount_guard: Any) -> None:
    guard = await mount_guard(high_risk_tools=["save_note", "save_page"])
    guard.answered_by(REMEMBERED_YES, NO)

    assert (await guard.judge("save_note", {"to": "a"})).action == "continue"
    assert (await guard.judge("save_note", {"to": "b"})).action == "continue"
    assert (await guard.judge("save_page", {"to": "a"})).action == "deny"


@pytest.mark.parametrize("tool_input", [{"content": "x"}, {"path": 7}])
async def test_a_file_tool_without_a_path_is_asked_every_time(mount_guard: Any, tool_input: dict[str, Any]) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(REMEMBERED_YES)

    await guard.judge("write_file", tool_input)
    await guard.judge("write_file", tool_input)

    assert len(provider.requests) == 2


async def test_memory_can_be_switched_off(mount_guard: Any) -> None:
    guard = await mount_guard(remember=False)
    provider = guard.answered_by(REMEMBERED_YES)

    await guard.judge_command("git push")
    await guard.judge_command("git push")

    assert len(provider.requests) == 2


async def test_what_one_session_remembers_no_other_knows(mount_guard: Any) -> None:
    first, second = await mount_guard(), await mount_guard()
    first.answered_by(REMEMBERED_YES)
    second.answered_by(NO)

    assert (await first.judge_command("git push")).action == "continue"
    assert (await second.judge_command("git push")).action == "deny"


async def test_auto_approve_grants_without_prompting_except_what_is_listed(mount_guard: Any) -> None:
    guard = await mount_guard(
        auto_approve=True, patterns=["Deploy"], rules=[{"pattern": "git push*", "action": "auto_deny"}]
    )
    provider = guard.answered_by(NO)

    assert (await guard.judge_command("make all")).action == "continue"
    assert (await guard.judge("write_file", {"path": "a"})).action == "continue"
    assert (await guard.judge_command("git push")).reason == "Auto-denied by rule"
    assert (await guard.judge_command("make deploy")).action == "deny"
    assert [request.action for request in provider.requests] == ["Execute: make deploy"]


async def test_patterns_prompt_whatever_the_rules_and_the_memory_say(mount_guard: Any) -> None:
    guard = await mount_guard(patterns=["secret"])
    provider = guard.answered_by(REMEMBERED_YES)

    assert (await guard.judge_command("ls SECRETS")).action == "continue"
    assert (await guard.judge_command("ls secrets")).action == "continue"
    assert (await guard.judge_command("ls src")).action == "continue"
    assert len(provider.requests) == 2


async def test_a_denial_by_rule_asks_nobody(mount_guard: Any) -> None:
    guard = await mount_guard(rules=[{"pattern": "rm *", "action": "auto_deny"}])
    provider = guard.answered_by(YES)

    verdict = await guard.judge_command("ls && rm x")

    assert (verdict.action, verdict.reason, provider.requests) == ("deny", "Auto-denied by rule", [])
    assert guard.events == ["approval:required", "approval:denied"]


@pytest.mark.parametrize("tool_input", ["ls", ["ls"], 7, {"command": ["ls"]}, {"command": None}, {"cmd": "ls"}])
async def test_malformed_input_prompts_even_where_everything_is_approved(mount_guard: Any, tool_input: Any) -> None:
    guard = await mount_guard(auto_approve=True)
    provider = guard.answered_by(NO)

    assert (await guard.judge("bash", tool_input)).action == "deny"
    assert len(provider.requests) == 1


async def test_without_a_provider_the_application_can_be_asked_instead(mount_guard: Any) -> None:
    guard = await mount_guard(ask_user_fallback=True, default_timeout=20, default_action="continue")

    question = await guard.judge_command("make")

    assert (question.action, question.approval_timeout, question.approval_default) == ("ask_user", 20.0, "allow")
    assert "Execute: make" in question.approval_prompt
    assert (guard.events, guard.audit) == (["approval:required"], [])


async def test_the_application_is_not_asked_where_its_answer_would_have_to_be_audited(mount_guard: Any) -> None:
    guard = await mount_guard(ask_user_fallback=True, audit={"required": True})

    assert (await guard.judge_command("make")).action == "deny"


async def test_a_later_provider_takes_the_place_of_an_earlier_one(mount_guard: Any) -> None:
    guard = await mount_guard()
    guard.answered_by(YES)
    guard.answered_by(NO)

    assert (await guard.judge_command("make")).action == "deny"


async def test_the_guard_comes_after_every_handler_that_may_change_a_call(mount_guard: Any) -> None:
    guard = await mount_guard()
    seen: list[str] = []
    guard.coordinator.hooks.register("tool:pre", lambda event, data: seen.append(event), priority=999, name="other")

    await guard.judge_command("make")

    assert seen == ["tool:pre"]


async def test_cleanup_removes_the_handler(mount_guard: Any) -> None:
    guard = await mount_guard()

    guard.cleanup()
    guard.cleanup()

    assert guard.coordinator.hooks.list_handlers("tool:pre") == {"tool:pre": []}
    assert (await guard.judge_command("make")).action == "continue"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("bash -c ls", "bash -c pwd"),
        ("python -m this", "python -m antigravity"),
        ("/usr/bin/python3.11 -m this", "/usr/bin/python3.11 -m antigravity"),
        ("env ls", "env pwd"),
        ("xargs ls", "xargs pwd"),
        ("find . -name x", "find . -delete"),
        ("npx one", "npx two"),
        ("ssh host uptime", "ssh host reboot"),
        ("git -c a=b status", "git -c core.fsmonitor=x status"),
        ("A=1 make", "A=2 make"),
    ],
)
async def test_an_answer_about_an_interpreter_or_a_wrapper_covers_that_command_only(
    mount_guard: Any, first: str, second: str
) -> None:
    guard = await mount_guard()
    provider = guard.answered_by(REMEMBERED_YES)

    for command in (first, first, second):
        await guard.judge_command(command)

    assert [request.action for request in provider.requests] == [f"Execute: {first}", f"Execute: {second}"]
