"""Hooks of hooks.json at work: what they are told, what their answers do, and that nothing is left of them."""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call, open_home
from amplifier_module_hook_shell import mount
from amplifier_module_hook_shell.declarations import Group, Place
from amplifier_module_hook_shell.protocol import read_verdict
from sandboxes import needs_sandbox, place_outside_tmp

from amplifier_core import HookResult
from amplifier_core.testing import MockCoordinator
from amplifierd.home import Home

TRUSTED = {"trust_project": True, "sandbox": "off"}


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session that is not closed leaves lies with the test's own files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = open_home(tmp_path)
    yield home
    await home.sessions.close()


def command(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": text, **more}


def saying(**answer: Any) -> dict[str, Any]:
    return command(f"echo '{json.dumps(answer)}'")


def is_alive(file: Path) -> bool:
    """True if the process whose number is in a file runs, and is not only waiting to be reaped."""
    try:
        status = Path(f"/proc/{file.read_text().strip()}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def specific(**output: Any) -> dict[str, Any]:
    return saying(hookSpecificOutput=output)


def declare(folder: Path, **events: list[dict[str, Any]]) -> Path:
    """Write a hooks.json in which each event has these hooks, whatever the matcher."""
    groups = {
        name: [each if "hooks" in each else {"hooks": [each]} for each in hooks] for name, hooks in events.items()
    }
    return write(folder / ".amplifier/hooks/hooks.json", json.dumps({"hooks": groups}))


def write(file: Path, text: str, *, executable: bool = False) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if executable:
        file.chmod(0o755)
    return file


def wait_for(file: Path) -> None:
    limit = time.monotonic() + 20
    while not file.exists() and time.monotonic() < limit:
        time.sleep(0.02)


async def mounted(work: Path, config: Mapping[str, Any] = TRUSTED) -> MockCoordinator:
    coordinator = MockCoordinator()
    coordinator.register_capability("session.working_dir", str(work))
    await mount(coordinator, dict(config))
    return coordinator


async def before(coordinator: MockCoordinator, tool: str = "bash", **tool_input: Any) -> HookResult:
    data = {"tool_name": tool, "tool_call_id": "c1", "tool_input": tool_input}
    return await coordinator.hooks.emit("tool:pre", data)


# --- acceptance


def agent(*script: Any, tools: Any) -> dict[str, Any]:
    hooks = [{"module": "hook-shell", "config": dict(TRUSTED)}]
    return Agent([*script, "Done."], tools=tools, hooks=hooks).sections()


async def ran(home: Home, work: Path, plan: dict[str, Any]) -> list[str]:
    """Run a turn and return what the model was shown with its last request."""
    session = await home.sessions.open(plan=plan, working_dir=work)
    await session.execute("Begin")
    last = home.sessions.requests(session.session_id)[-1]
    return [str(part.message) for part in last.parts]


async def test_a_validator_a_formatter_and_a_linter_work_in_a_session(home: Home, work: Path) -> None:
    validator = """#!/bin/sh
input=$(cat)
case "$input" in *'rm -rf /'*) echo 'that would delete everything' >&2; exit 2;; esac
"""
    linter = """#!/bin/sh
echo '{"decision": "approve", "contextInjection": "line 1 is too long"}'
"""
    hooks = work / ".amplifier/hooks"
    write(hooks / "validate.sh", validator, executable=True)
    write(hooks / "linter/lint.sh", linter, executable=True)
    declare(
        work,
        PreToolUse=[{"matcher": "Bash", "hooks": [command("${AMPLIFIER_HOOKS_DIR}/validate.sh")]}],
        PostToolUse=[{"matcher": "Edit|Write", "hooks": [command("tr a-z A-Z < new.txt > t && mv t new.txt")]}],
    )
    lint = [{"matcher": "write_file", "hooks": [command("$AMPLIFIER_HOOKS_DIR/linter/lint.sh")]}]
    write(hooks / "linter/hooks.json", json.dumps({"hooks": {"PostToolUse": lint}}))
    tools = ({"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"sandbox": "off"}})
    script = [call("bash", command="echo 'rm -rf /' > ran.txt"), call("write_file", file_path="new.txt", content="new")]

    said = "\n".join(await ran(home, work, agent(*script, tools=tools)))

    assert "that would delete everything" in said
    assert not (work / "ran.txt").exists()
    assert (work / "new.txt").read_text() == "NEW"
    assert '<system-reminder source="hook-shell">' in said
    assert "line 1 is too long" in said


async def test_a_guard_in_claudes_settings_denies(work: Path) -> None:
    guard = {"matcher": "Write", "hooks": [specific(permissionDecision="deny", permissionDecisionReason="frozen")]}
    write(work / ".claude/settings.json", json.dumps({"model": "x", "hooks": {"PreToolUse": [guard]}}))

    answer = await before(await mounted(work, {**TRUSTED, "read_claude_settings": True}), "write_file")
    unread = await before(await mounted(work), "write_file")

    assert (answer.action, answer.reason) == ("deny", "frozen")
    assert unread.action == "continue"


async def test_a_hook_that_does_not_end_leaves_no_process(work: Path) -> None:
    sleeper = command("echo $$ > shell; (setsid sleep 60 & echo $! > child); sleep 60", timeout=0.5)
    declare(work, PreToolUse=[sleeper])

    answer = await before(await mounted(work))

    assert answer.action == "deny"
    assert "0.5 seconds" in str(answer.reason)
    for name in ("shell", "child"):
        assert not is_alive(work / name)


async def test_what_a_hook_leaves_running_is_ended_and_not_waited_for(work: Path) -> None:
    declare(work, PreToolUse=[command("sleep 60 & echo $! > child")])

    answer = await before(await mounted(work))

    assert answer.action == "continue"
    assert not is_alive(work / "child")


# --- whose hooks run


async def test_the_hooks_of_a_project_run_only_where_the_configuration_says_so(work: Path, tmp_path: Path) -> None:
    declare(work, PreToolUse=[command("touch ran")])
    write(work / ".claude/settings.json", json.dumps({"hooks": {"PreToolUse": [{"hooks": [command("touch ran")]}]}}))
    declare(tmp_path / "person", PreToolUse=[command("touch mine")])
    coordinator = await mounted(work, {"sandbox": "off", "read_claude_settings": True})
    skill = {"PreToolUse": [{"hooks": [command("./guard.sh")]}]}
    write(work / "skill/guard.sh", "#!/bin/sh\ntouch ran\n", executable=True)
    loaded = {"skill_name": "s", "skill_directory": str(work / "skill"), "hooks": skill}
    await coordinator.hooks.emit("skill:loaded", loaded)

    await before(coordinator)

    assert (work / "mine").exists()
    assert not (work / "ran").exists()


async def test_a_file_that_changed_since_the_session_began_does_not_run(work: Path) -> None:
    script = write(work / ".amplifier/hooks/check.sh", "#!/bin/sh\n", executable=True)
    declare(work, PreToolUse=[command("$AMPLIFIER_HOOKS_DIR/check.sh")])
    coordinator = await mounted(work)
    assert (await before(coordinator)).action == "continue"
    write(work / ".amplifier/hooks/check.log", "checked")
    assert (await before(coordinator)).action == "continue"

    script.write_text("#!/bin/sh\ntouch ran\n")
    answer = await before(coordinator)

    assert answer.action == "deny"
    assert "has changed since the session began" in str(answer.reason)
    assert not (work / "ran").exists()


async def test_the_hooks_of_a_skill_run_while_it_is_loaded(work: Path, tmp_path: Path) -> None:
    write(tmp_path / "skill/guard.sh", "#!/bin/sh\necho no >&2\nexit 2\n", executable=True)
    data = {
        **{"skill_name": "s", "skill_directory": str(tmp_path / "skill")},
        "hooks": {"PreToolUse": [{"hooks": [command("./guard.sh now")]}]},
    }
    coordinator = await mounted(work, {"sandbox": "off"})

    await coordinator.hooks.emit("skill:loaded", data)
    loaded = await before(coordinator)
    await coordinator.hooks.emit("skill:unloaded", data)
    unloaded = await before(coordinator)

    assert (loaded.action, loaded.reason, unloaded.action) == ("deny", "no", "continue")


async def test_a_session_runs_the_hooks_of_a_trusted_project_as_long_as_they_are_what_was_trusted(
    home: Home, work: Path
) -> None:
    write(work / "tools/check.sh", "#!/bin/sh\ntouch ran\n", executable=True)
    file = declare(work, UserPromptSubmit=[command("tools/check.sh")])
    plan = Agent(hooks=[{"module": "hook-shell", "config": {"sandbox": "off"}}]).sections()

    async def is_run() -> bool:
        (work / "ran").unlink(missing_ok=True)
        session = await home.sessions.open(plan=plan, working_dir=work)
        await session.execute("Begin")
        return (work / "ran").exists()

    assert not await is_run()
    home.trust.add(work)
    assert await is_run()
    (work / "tools/check.sh").write_text("#!/bin/sh\ntouch ran other\n")
    assert not await is_run()
    home.trust.add(work)
    assert await is_run()
    file.write_text(file.read_text() + " ")
    assert not await is_run()


# --- guards that cannot run


CANNOT_RUN = [
    command("/no/such/program"),
    command("kill -9 $$"),
    command("sleep 60", timeout=0.2),
    {"type": "prompt", "prompt": "Safe? $ARGUMENTS"},
    {"type": "other"},
    {"type": "command"},
]


@pytest.mark.parametrize("hook", CANNOT_RUN, ids=lambda hook: str(hook.get("command") or hook["type"]))
async def test_a_projects_guard_that_cannot_run_denies_and_a_persons_allows(
    work: Path, tmp_path: Path, hook: dict[str, Any]
) -> None:
    declare(tmp_path / "person", PreToolUse=[hook])
    assert (await before(await mounted(work))).action == "continue"
    assert (await before(await mounted(work, {**TRUSTED, "on_error": "deny"}))).action == "deny"

    declare(work, PreToolUse=[hook])
    assert (await before(await mounted(work))).action == "deny"
    assert (await before(await mounted(work, {**TRUSTED, "on_error": "allow"}))).action == "continue"


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', "\udcff"])
async def test_a_projects_file_that_cannot_be_read_denies(work: Path, text: str) -> None:
    file = work / ".amplifier/hooks/hooks.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))

    answer = await before(await mounted(work))

    assert answer.action == "deny"
    assert "hooks.json" in str(answer.reason)


async def test_other_exit_codes_allow(work: Path) -> None:
    declare(work, PreToolUse=[command("echo oops >&2; exit 1")])

    assert (await before(await mounted(work))).action == "continue"


async def test_a_hook_answers_a_request_for_a_permission(home: Home, work: Path) -> None:
    guard = command("""grep -q '"tool_input": {"command": "touch made"}' && echo not this >&2 && exit 2""")
    declare(work, PermissionRequest=[{"matcher": "Bash", "hooks": [guard]}])
    tools = ({"module": "tool-bash", "config": {"sandbox": "off"}},)
    hooks = [{"module": "hook-shell", "config": dict(TRUSTED)}, {"module": "hooks-approval"}]
    plan = Agent([call("bash", command="touch made"), "Done."], tools=tools, hooks=hooks).sections()

    said = "\n".join(await ran(home, work, plan))

    assert "not this" in said
    assert not (work / "made").exists()


async def test_a_model_judges_a_call(home: Home, work: Path) -> None:
    question = {"type": "prompt", "prompt": "May this run? $ARGUMENTS"}
    declare(work, PreToolUse=[question])
    files = ({"module": "tool-filesystem"},)
    write_new = call("write_file", file_path="new.txt", content="new")
    script = [write_new, '{"ok": false, "reason": "not today"}', write_new, '{"ok": true}']

    said = "\n".join(await ran(home, work, agent(*script, tools=files)))

    assert said.count("not today") == 1
    assert (work / "new.txt").read_text() == "new"


# --- what they are told


async def test_a_command_is_told_of_the_call_in_claudes_words(work: Path) -> None:
    declare(work, PreToolUse=[command("cat > told; pwd > where; env > variables")])
    coordinator = await mounted(work)
    os.environ["A_SECRET_OF_MINE"] = "x"
    try:
        await before(coordinator, "edit_file", file_path="a")
    finally:
        del os.environ["A_SECRET_OF_MINE"]

    told = json.loads((work / "told").read_text())
    assert told["tool_name"] == "Edit"
    assert told["amplifier_tool_name"] == "edit_file"
    assert told["tool_input"] == {"file_path": "a"}
    assert (told["tool_use_id"], told["hook_event_name"], told["cwd"]) == ("c1", "PreToolUse", str(work))
    assert told["permission_mode"] == "default"
    assert told.keys() >= {"session_id", "transcript_path", "timestamp"}
    assert (work / "where").read_text().strip() == str(work)
    variables = (work / "variables").read_text()
    assert f"AMPLIFIER_PROJECT_DIR={work}" in variables
    assert f"CLAUDE_PROJECT_DIR={work}" in variables
    assert "A_SECRET_OF_MINE" not in variables


async def test_variables_reach_later_hooks(work: Path) -> None:
    lines = "printf 'ONE=1\\nexport TWO=\"a b\"\\n' >> $CLAUDE_ENV_FILE"
    declare(work, SessionStart=[command(lines)], PreToolUse=[command('echo "$ONE $TWO" > said')])
    coordinator = await mounted(work)

    await coordinator.hooks.emit("session:start", {})
    await before(coordinator)

    assert (work / "said").read_text() == "1 a b\n"


@pytest.mark.parametrize(
    ("matcher", "tool", "is_meant"),
    [
        *(("Bash", "bash", True), ("bash", "bash", True), ("", "bash", True), ("*", "bash", True)),
        *(("Edit|Write", "edit_file", True), ("Edit|Write", "write_file", True), ("MultiEdit", "apply_patch", True)),
        *(
            ("Read", "read_file", True),
            ("Edit", "read_file", False),
            ("Bas", "bash", False),
            ("Task", "delegate", True),
        ),
        *(("Web.*", "web_fetch", True), ("TodoWrite", "todo", True), ("Skill", "load_skill", True)),
        *(("mcp__git__.*", "mcp_git_log", True), ("mcp__git__.*", "mcp_web_log", False), ("[", "[", True)),
    ],
)
def test_a_matcher_means_tools_by_all_their_names(matcher: str, tool: str, is_meant: bool) -> None:
    assert Group("PreToolUse", matcher, (), Place("user", Path("/x"))).matches(tool) is is_meant


# --- what their answers do


async def test_all_hooks_run_and_a_denial_wins(work: Path) -> None:
    hooks = [
        saying(decision="approve", contextInjection="context"),
        saying(decision="block", reason="first"),
        specific(permissionDecision="ask"),
        saying(**{"continue": False, "stopReason": "second"}),
        command("touch ran"),
    ]
    declare(work, PreToolUse=[{"parallel": True, "hooks": hooks}])

    answer = await before(await mounted(work))

    assert (answer.action, answer.reason) == ("deny", "first\nsecond")
    assert (work / "ran").exists()


async def test_changes_of_the_input_chain_and_a_context_comes_with_them(work: Path) -> None:
    second = command("cat > told; " + specific(additionalContext="note")["command"])
    declare(work, PreToolUse=[specific(updatedInput={"command": "ls"}), second])

    answer = await before(await mounted(work), command="rm x")

    assert json.loads((work / "told").read_text())["tool_input"] == {"command": "ls"}
    assert answer.data is not None
    assert answer.data["tool_input"] == {"command": "ls"}
    assert answer.action == "inject_context"
    assert answer.context_injection == '<system-reminder source="hook-shell">\nnote\n</system-reminder>'


async def test_ask_asks_the_person(work: Path) -> None:
    declare(work, PreToolUse=[specific(permissionDecision="ask", permissionDecisionReason="Sure?")])

    answer = await before(await mounted(work))

    assert (answer.action, answer.approval_prompt, answer.approval_default) == ("ask_user", "Sure?", "deny")


async def test_plain_text_is_context_where_a_session_or_a_turn_begins(work: Path) -> None:
    start = {"matcher": "resume", "hooks": [command("echo Welcome back")]}
    declare(
        work, SessionStart=[start], UserPromptSubmit=[command("echo Today is Monday")], PreToolUse=[command("echo x")]
    )
    coordinator = await mounted(work)

    await coordinator.hooks.emit("session:start", {})
    assert (await coordinator.hooks.emit("provider:request", {})).action == "continue"
    await coordinator.hooks.emit("session:resume", {})
    prompt = await coordinator.hooks.emit("prompt:submit", {"prompt": "x"})
    request = await coordinator.hooks.emit("provider:request", {})

    assert "Today is Monday" in str(prompt.context_injection)
    assert "Welcome back" in str(request.context_injection)
    assert (await before(coordinator)).action == "continue"
    assert (await coordinator.hooks.emit("provider:request", {})).action == "continue"


async def test_a_prompt_can_be_stopped_and_a_finished_call_only_commented_on(work: Path) -> None:
    stop = command("echo no >&2; exit 2")
    declare(work, UserPromptSubmit=[stop], PostToolUse=[stop], PostToolUseFailure=[command("touch failed")])
    coordinator = await mounted(work)

    prompt = await coordinator.hooks.emit("prompt:submit", {"prompt": "x"})
    result = {"tool_name": "bash", "tool_input": {}, "tool_result": {"success": False}}
    post = await coordinator.hooks.emit("tool:post", result)

    assert (prompt.action, prompt.reason) == ("deny", "no")
    assert post.action == "inject_context"
    assert "no" in str(post.context_injection)
    assert (work / "failed").exists()


async def test_what_a_stop_hook_objects_to_is_told_with_the_next_request(work: Path) -> None:
    declare(work, Stop=[saying(decision="block", reason="the tests fail")])
    coordinator = await mounted(work)

    await coordinator.hooks.emit("prompt:complete", {})
    request = await coordinator.hooks.emit("provider:request", {})

    assert "the tests fail" in str(request.context_injection)


async def test_hooks_of_calls_that_run_side_by_side_share_one_file_of_variables(work: Path) -> None:
    declare(work, PreToolUse=[command('echo "$CLAUDE_ENV_FILE" >> files')])
    coordinator = await mounted(work)

    await asyncio.gather(*(before(coordinator) for _ in range(4)))

    lines = (work / "files").read_text().split()
    assert (len(lines), len(set(lines))) == (4, 1)


async def test_without_blocking_the_reasons_are_only_told(work: Path) -> None:
    declare(work, PreToolUse=[command("echo careful >&2; exit 2")])

    answer = await before(await mounted(work, {**TRUSTED, "allow_blocking": False}))

    assert answer.action == "inject_context"
    assert "careful" in str(answer.context_injection)


@pytest.mark.parametrize(
    ("text", "decision", "is_error"),
    [
        ('{"ok": true}', "allow", False),
        ('Well: {"ok": false, "reason": "no"}', "deny", False),
        ('{"ok": "yes"}', "", True),
        ("yes", "", True),
    ],
)
def test_a_model_answers_with_a_verdict_or_not_at_all(text: str, decision: str, is_error: bool) -> None:
    reply = read_verdict(text)

    assert (reply.decision, bool(reply.error)) == (decision, is_error)


async def test_commands_run_beside_the_loop(work: Path) -> None:
    declare(work, PreToolUse=[command("while [ ! -e go ]; do sleep 0.02; done")])
    coordinator = await mounted(work)

    waiting = asyncio.ensure_future(before(coordinator))
    await asyncio.sleep(0)
    (work / "go").touch()

    assert (await asyncio.wait_for(waiting, 20)).action == "continue"


async def test_a_cancelled_turn_leaves_no_hook_running(work: Path) -> None:
    declare(work, PreToolUse=[command("echo $$ > shell.new; mv shell.new shell; sleep 60")])
    waiting = asyncio.ensure_future(before(await mounted(work)))
    await asyncio.to_thread(wait_for, work / "shell")

    waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled()
    assert not is_alive(work / "shell")


@pytest.fixture
def outside_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with place_outside_tmp() as place:
        monkeypatch.setenv("HOME", str(place / "person"))
        (place / "work").mkdir()
        yield place


@needs_sandbox
async def test_in_a_sandbox_a_command_writes_to_the_project_alone(outside_tmp: Path) -> None:
    work = outside_tmp / "work"
    script = "#!/bin/sh\ntouch inside ../outside\nenv > variables\necho ONE=1 > $AMPLIFIER_ENV_FILE\n"
    write(outside_tmp / "person/.amplifier/hooks/act.sh", script, executable=True)
    told = [command("$AMPLIFIER_HOOKS_DIR/act.sh"), command("echo $ONE > said")]
    declare(outside_tmp / "person", PreToolUse=told)

    answer = await before(await mounted(work, {"sandbox": "required"}))

    assert answer.action == "continue"
    assert (work / "inside").exists()
    assert not (outside_tmp / "outside").exists()
    assert (work / "said").read_text() == "1\n"


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("amplifier-hooks-*/*")]


async def test_a_cleanup_removes_what_hooks_left_for_one_another(work: Path, tmp_path: Path) -> None:
    declare(work, PreToolUse=[command('echo A=1 > "$AMPLIFIER_ENV_FILE"')])
    coordinator = MockCoordinator()
    coordinator.register_capability("session.working_dir", str(work))
    cleanup = await mount(coordinator, TRUSTED)
    await before(coordinator)
    left = left_in(tmp_path)

    cleanup()

    assert (left, left_in(tmp_path)) == (["environment"], [])


async def test_switched_off_nothing_runs(work: Path) -> None:
    declare(work, PreToolUse=[command("touch ran")])

    await before(await mounted(work, {**TRUSTED, "enabled": False}))

    assert not (work / "ran").exists()
