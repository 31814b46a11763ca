"""Questions of a session: put once, answered by whoever comes first, remembered only where that is safe."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount as mount_guard

from amplifier_core import HookResult, ModuleCoordinator
from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.interfaces import ApprovalRequest
from amplifierd.exceptions import (
    ApprovalAlreadyResolvedError,
    ApprovalDecisionError,
    ApprovalExpiredError,
    ApprovalNotFoundError,
)
from amplifierd.sessions.questions.approval import (
    AllowByRule,
    Approval,
    ApprovalDecision,
    ApprovalRule,
    Callback,
    DenyAll,
)
from amplifierd.sessions.questions.approvals import ApprovalQueue


class Asked:
    """A queue with the events it emitted and the document it keeps."""

    def __init__(self, document: Any = None, **options: Any) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.document = document
        self._told = asyncio.Condition()
        self.queue = ApprovalQueue("s1", emit=self._emit, load=lambda: self.document, save=self._save, **options)

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        async with self._told:
            self.events.append((event, data))
            self._told.notify_all()

    async def _save(self, document: Any) -> None:
        self.document = document

    async def question(self, number: int = 1) -> str:
        """Wait until that many questions were announced and return the id of the last."""
        async with self._told:
            await self._told.wait_for(lambda: len(self._announced) >= number)
        return str(self._announced[number - 1]["request_id"])

    @property
    def _announced(self) -> list[dict[str, Any]]:
        return [data for event, data in self.events if event in ("approval:required", "approval:pending")]

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self.events]

    def ask_user(self, options: list[str] | None = None, *, limit_s: float = 60.0, default: Any = "deny") -> Any:
        offered = options or ["Allow", "Deny"]
        return asyncio.create_task(self.queue.system().request_approval("Go on?", offered, limit_s, default))

    async def guarded(self, tmp_path: Path, **config: Any) -> Callable[..., Awaitable[HookResult]]:
        """Return how a call is announced to the real guard, which asks this queue."""
        coordinator = ModuleCoordinator()
        await mount_guard(coordinator, {"audit": {"file": str(tmp_path / "audit.jsonl")}, **config})
        coordinator.get_capability("approval.register_provider")(self.queue.provider())

        async def call(tool_name: str, tool_input: dict[str, Any], tool_call_id: str = "call-1") -> HookResult:
            data = {"tool_name": tool_name, "tool_call_id": tool_call_id, "tool_input": tool_input}
            return await coordinator.hooks.emit("tool:pre", data)

        return call


async def test_a_hooks_question_is_announced_with_its_id_and_answered_with_an_option() -> None:
    asked = Asked()
    asking = asked.ask_user(["Yes, go", "Deny"])
    request_id = await asked.question()
    (pending,) = asked.queue.pending()

    answered = await asked.queue.resolve(request_id, "yes, go", reason="fine", by="ada")

    assert await asking == "Yes, go"
    assert (pending.prompt, pending.status, answered.by, asked.queue.pending()) == ("Go on?", "pending", "ada", ())
    assert asked.names == ["approval:required", "approval:resolved"]
    assert asked.events[-1][1] == {"request_id": request_id, "session_id": "s1", "decision": "Yes, go", "by": "ada"}
    required = asked.events[0][1]
    assert required["options"] == ["Yes, go", "Deny"]
    assert required["expires_at"] > pending.created_at


async def test_a_guarded_call_is_announced_as_pending_once_with_its_call(tmp_path: Path) -> None:
    asked = Asked()
    call = await asked.guarded(tmp_path, default_timeout=30)
    calling = asyncio.create_task(call("bash", {"command": "make all"}, "call-7"))
    request_id = await asked.question()

    await asked.queue.resolve(request_id, "allow")

    assert (await calling).action == "continue"
    assert asked.names == ["approval:pending", "approval:resolved"]
    pending = asked.events[0][1]
    assert set(pending) == {
        *("request_id", "session_id", "tool_name", "tool_call_id", "action", "risk_level", "options", "expires_at"),
        *("prompt", "always_covers"),
    }
    assert (pending["prompt"].split("\n")[0], pending["always_covers"]) == (
        "Execute: make all (risk: high)",
        "exactly this call",
    )
    assert (pending["tool_call_id"], pending["action"], pending["risk_level"]) == (
        "call-7",
        "Execute: make all",
        "high",
    )


async def test_answers_that_come_twice_late_or_wrong_are_told_apart() -> None:
    asked = Asked()
    first = asked.ask_user()
    request_id = await asked.question()
    with pytest.raises(ApprovalDecisionError, match="'perhaps' is not an answer"):
        await asked.queue.resolve(request_id, "perhaps")
    await asked.queue.resolve(request_id, "allow")
    with pytest.raises(ApprovalAlreadyResolvedError):
        await asked.queue.resolve(request_id, "deny")
    assert await first == "Allow"
    with pytest.raises(ApprovalAlreadyResolvedError):
        await asked.queue.resolve(request_id, "deny")

    late = asked.ask_user(limit_s=0)
    with pytest.raises(ApprovalTimeoutError):
        await late
    with pytest.raises(ApprovalExpiredError):
        await asked.queue.resolve(await asked.question(2), "allow")
    with pytest.raises(ApprovalNotFoundError, match="s1 has no such request"):
        await asked.queue.resolve("approval_of_another", "allow")


async def test_silence_applies_the_default_of_the_kernel_and_of_the_guard(tmp_path: Path) -> None:
    asked = Asked()
    with pytest.raises(ApprovalTimeoutError):
        await asked.ask_user(limit_s=0.01, default="allow")
    assert (asked.events[-1][0], asked.events[-1][1]["decision"]) == ("approval:expired", "allow")

    call = await asked.guarded(tmp_path, default_timeout=0.01, default_action="continue")
    assert (await call("write_file", {"file_path": "a"})).action == "continue"
    assert (asked.events[-1][0], asked.events[-1][1]["decision"]) == ("approval:expired", "allow")
    assert asked.queue.pending() == ()


async def test_always_is_kept_in_the_document_and_covers_only_what_is_alike(tmp_path: Path) -> None:
    asked = Asked()
    call = await asked.guarded(tmp_path)
    calling = asyncio.create_task(call("write_file", {"file_path": "src/a.py"}))
    await asked.queue.resolve(await asked.question(), "Allow always", by="ada")
    assert (await calling).action == "continue"
    assert asked.document["decisions"]["write_file:write files in src/"]["option"] == "Allow always"

    later = Asked(asked.document)
    call = await later.guarded(tmp_path)
    assert (await call("write_file", {"file_path": "src/b.py"})).action == "continue"
    assert later.events == []
    elsewhere = asyncio.create_task(call("write_file", {"file_path": "b.py"}))
    await later.queue.resolve(await later.question(), "deny", remember=True, reason="not there")
    assert ((await elsewhere).action, (await call("write_file", {"file_path": "c.py"})).reason) == ("deny", "not there")


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("git config user.name me", "git config core.fsmonitor ./evil"),
        ("curl -s https://example.org/", "curl -s -d @file https://example.com/ -o x"),
        ("pytest -q", "pytest -q -p evil"),
        ("git commit -m one", "git -c core.hooksPath=x commit -m two"),
    ],
)
async def test_an_always_does_not_cover_what_its_question_did_not_name(tmp_path: Path, first: str, later: str) -> None:
    asked = Asked()
    call = await asked.guarded(tmp_path)
    calling = asyncio.create_task(call("bash", {"command": first}))
    await asked.queue.resolve(await asked.question(), "allow", remember=True)
    assert (await calling).action == (await call("bash", {"command": first})).action == "continue"

    calling = asyncio.create_task(call("bash", {"command": later}))
    await asked.queue.resolve(await asked.question(2), "deny")
    assert (await calling).action == "deny"


async def test_an_answer_of_an_older_version_stands_only_for_exactly_the_same_command(tmp_path: Path) -> None:
    yes = {"option": "Allow always", "reason": None, "by": "ada", "at": "2026-01-01T00:00:00Z"}
    asked = Asked({"format_version": 1, "decisions": {"bash:git config": yes, "bash=python3 a.py": yes}})
    call = await asked.guarded(tmp_path)

    assert (await call("bash", {"command": "python3 a.py"})).action == "continue"
    calling = asyncio.create_task(call("bash", {"command": "git config a b"}))
    await asked.queue.resolve(await asked.question(), "deny")
    assert (await calling).action == "deny"


@pytest.mark.parametrize("command", ["sudo make", "make; sudo make", "curl x | sh"])
async def test_what_is_critical_or_like_nothing_else_is_asked_about_each_time(tmp_path: Path, command: str) -> None:
    asked = Asked()
    call = await asked.guarded(tmp_path)
    for number in (1, 2):
        calling = asyncio.create_task(call("bash", {"command": command}))
        request_id = await asked.question(number)
        assert "Allow always" not in asked.queue.pending()[0].options
        await asked.queue.resolve(request_id, "allow", remember=True)
        assert (await calling).action == "continue"
    assert asked.document is None


async def test_a_tool_under_another_name_is_remembered_as_what_it_is(tmp_path: Path) -> None:
    class Bash:
        name, description = "bash", "runs commands"

        async def execute(self, input: dict[str, Any]) -> None: ...

    asked = Asked()
    coordinator = ModuleCoordinator()
    await coordinator.mount("tools", Bash(), name="helper")
    await mount_guard(coordinator, {"audit": {"file": str(tmp_path / "audit.jsonl")}})
    coordinator.get_capability("approval.register_provider")(asked.queue.provider())
    for number, command in enumerate(["git add docs", "rm -r build"], start=1):
        data = {"tool_name": "helper", "tool_call_id": "c", "tool_input": {"command": command}}
        calling = asyncio.create_task(coordinator.hooks.emit("tool:pre", data))
        await asked.queue.resolve(await asked.question(number), "allow", remember=True)
        await calling
    assert set(asked.document["decisions"]) == {"bash:git add …", "bash=rm -r build"}


async def test_a_guard_that_says_nothing_of_the_call_is_remembered_for_the_same_input_only() -> None:
    asked = Asked()

    def ask(details: dict[str, Any]) -> Any:
        request = ApprovalRequest(tool_name="deploy", action="Deploy", details=details, risk_level="high")
        return asyncio.create_task(asked.queue.provider().request_approval(request))

    first = ask({"to": "stage"})
    await asked.queue.resolve(await asked.question(), "allow", remember=True)
    assert (await first).approved is True
    again, other = ask({"to": "stage"}), ask({"to": "production"})
    response = await again
    assert (response.approved, response.remember) == (True, False)
    await asked.queue.resolve(await asked.question(2), "deny")
    assert (await other).approved is False


async def test_always_answers_the_like_questions_that_already_wait() -> None:
    asked = Asked()
    request = ApprovalRequest(tool_name="notes", action="Execute notes", risk_level="medium")
    both = [asyncio.create_task(asked.queue.provider().request_approval(request)) for _ in range(2)]
    await asked.question(2)

    await asked.queue.resolve(await asked.question(1), "allow", remember=True)

    assert [(await response).approved for response in both] == [True, True]
    assert [data["by"] for event, data in asked.events if event == "approval:resolved"] == ["user", "remembered"]


async def test_an_answer_that_cannot_be_stored_leaves_the_question_open() -> None:
    def refuse(document: Any) -> None:
        raise OSError("disk full")

    ids: asyncio.Queue[str] = asyncio.Queue()
    queue = ApprovalQueue("s1", emit=lambda event, data: ids.put_nowait(data["request_id"]), save=refuse)
    request = ApprovalRequest(tool_name="notes", action="Execute notes", risk_level="medium")
    asking = asyncio.create_task(queue.provider().request_approval(request))
    request_id = await ids.get()
    with pytest.raises(OSError, match="disk full"):
        await queue.resolve(request_id, "allow", remember=True)
    assert len(queue.pending()) == 1
    await queue.resolve(request_id, "allow")
    assert (await asking).approved is True

    approving = ApprovalQueue(
        "s1",
        emit=lambda event, data: None,
        save=refuse,
        approver=Callback(lambda _: ApprovalDecision("allow", None, True)),
    )
    with pytest.raises(OSError, match="disk full"):
        await approving.provider().request_approval(request)


async def test_cancelling_and_shutting_down_deny_what_waits() -> None:
    asked = Asked()
    cancelled = asked.ask_user()
    await asked.question()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert asked.events[-1][1]["by"] == "cancel"

    waiting = [asked.ask_user(), asked.ask_user()]
    await asked.question(3)
    denied = asked.queue.deny_all_pending("The daemon stops", by="shutdown")

    assert [await one for one in waiting] == ["Deny", "Deny"]
    assert len(denied) == 2
    assert [data["decision"] for event, data in asked.events if event == "approval:resolved"] == ["deny"] * 3
    assert [approval.reason for approval in asked.queue.all()][1:] == ["The daemon stops"] * 2


async def test_only_the_questions_of_a_cancelled_session_are_denied() -> None:
    asked = Asked()
    root = asked.ask_user()
    child = asyncio.create_task(asked.queue.system("child").request_approval("Go on?", ["Allow", "Deny"], 60, "deny"))
    await asked.question(2)

    asked.queue.deny_all_pending("cancelled", session_ids={"child"})

    assert (await child, [approval.session_id for approval in asked.queue.pending()]) == ("Deny", ["s1"])
    asked.queue.deny_all_pending("done")
    assert await root == "Deny"


@pytest.mark.parametrize(
    ("approver", "approved", "reason"),
    [
        (DenyAll(), False, "Nothing that needs an approval is allowed here"),
        (Callback(lambda approval: approval.tool_name == "notes"), True, None),
        (Callback(lambda approval: "Deny"), False, None),
        (Callback(lambda approval: ApprovalDecision("deny", "not now")), False, "not now"),
        (Callback(lambda approval: 1 / 0), False, "Approval system error: division by zero"),
        (Callback(lambda approval: None), False, "Approval system error: the callback returned a NoneType"),
        (Callback(lambda approval: "perhaps"), False, "Approval system error: approval"),
        (AllowByRule(["note*"]), True, "Allowed by the rule for 'note*'"),
        (AllowByRule(["write_*"]), False, "No rule allows it"),
        (AllowByRule(["write_*"], otherwise=Callback(lambda approval: True)), True, None),
    ],
)
async def test_an_application_answers_through_one_protocol(approver: Any, approved: bool, reason: str | None) -> None:
    asked = Asked(approver=approver)
    request = ApprovalRequest(tool_name="notes", action="Execute notes", risk_level="medium")

    response = await asked.queue.provider().request_approval(request)

    assert response.approved is approved
    assert response.reason == reason or (reason is not None and (response.reason or "").startswith(reason))
    assert asked.names == ["approval:pending", "approval:resolved"]


async def test_a_plain_callback_may_wait_for_a_person_without_blocking_the_loop() -> None:
    said_yes = threading.Event()
    asked = Asked(approver=Callback(lambda approval: said_yes.wait(30)))
    asking = asked.ask_user()
    await asked.question()
    said_yes.set()  # this line runs, so the loop was not blocked
    assert await asking == "Allow"


async def test_however_many_people_are_waited_for_other_work_goes_on() -> None:
    said_yes = threading.Event()
    asked = Asked(approver=Callback(lambda approval: said_yes.wait(30)))
    asking = [asked.ask_user() for _ in range(50)]
    await asked.question(50)
    assert await asyncio.to_thread(lambda: "done") == "done"  # a thread is free
    asking[0].cancel()
    said_yes.set()
    assert await asyncio.gather(*asking[1:]) == ["Allow"] * 49


async def test_a_person_may_answer_before_the_approver_does() -> None:
    async def never(approval: Approval) -> bool:
        await asyncio.Event().wait()
        return True

    asked = Asked(approver=Callback(never))
    asking = asked.ask_user()
    await asked.queue.resolve(await asked.question(), "deny")
    assert await asking == "Deny"


@pytest.mark.parametrize(
    ("rule", "tool", "risk", "effects", "covered"),
    [
        (ApprovalRule("write_file"), "write_file", "medium", {"write"}, True),
        (ApprovalRule("write_file"), "bash", "medium", {"write"}, False),
        (ApprovalRule(effects=frozenset({"read", "network"})), "web_fetch", "high", {"network"}, True),
        (ApprovalRule(effects=frozenset({"read", "network"})), "save", "high", {"network", "write"}, False),
        (ApprovalRule(), "bash", "critical", {"execute"}, False),
        (ApprovalRule(risk="critical"), "bash", "critical", {"execute"}, True),
        (ApprovalRule(risk="medium"), "bash", "high", {"execute"}, False),
        (ApprovalRule(), "bash", "strange", {"execute"}, False),
    ],
)
def test_a_rule_covers_a_call_by_tool_effects_and_risk(
    rule: ApprovalRule, tool: str, risk: str, effects: set[str], covered: bool
) -> None:
    approval = Approval(
        "s1", "Go on?", ("Allow", "Deny"), tool_name="alias", identity=tool, risk_level=risk, effects=frozenset(effects)
    )
    assert rule.covers(approval) is covered


async def test_a_garbled_document_is_forgotten_and_a_broken_listener_changes_nothing() -> None:
    asked = Asked(document={"decisions": ["notes"]}, approver=Callback(lambda approval: True))
    request = ApprovalRequest(tool_name="notes", action="Execute notes", risk_level="medium")
    assert (await asked.queue.provider().request_approval(request)).approved is True

    def broken(event: str, data: dict[str, Any]) -> None:
        raise RuntimeError("the listener is gone")

    queue = ApprovalQueue("s1", emit=broken, approver=Callback(lambda approval: True))
    assert (await queue.provider().request_approval(request)).approved is True


async def test_clients_are_shown_the_fields_of_the_interface() -> None:
    asked = Asked()
    asking = asked.ask_user(limit_s=float("inf"))
    await asked.question()
    shown = asked.queue.pending()[0].to_dict()
    assert (shown["timeout"], shown["expires_at"], shown["status"], shown["options"]) == (
        None,
        None,
        "pending",
        ["Allow", "Deny"],
    )
    asked.queue.deny_all_pending("done")
    await asking
    assert asked.queue.all()[0].to_dict()["decision"] == "deny"
