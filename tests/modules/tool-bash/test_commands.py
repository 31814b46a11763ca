"""Commands that are waited for: what they get, what they return, what they are refused."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool
from amplifier_module_tool_bash.launch import LaunchPad, Starts, find_shell
from amplifier_module_tool_bash.settings import Settings
from amplifier_module_tool_bash.tool import ForegroundCommands

from amplifier_core.testing import MockCoordinator, wait_for
from amplifier_kit.approval import Consent
from amplifier_kit.policy import SessionPolicy


async def test_a_failing_command_returns_its_code_and_what_it_printed(shell: Any) -> None:
    result = await shell.run("printf x; exit 3")

    assert (result.success, result.output["returncode"], result.output["stdout"]) == (False, 3, "x")
    assert result.error == {"message": "Command exited with code 3", "code": "exit_status", "returncode": 3}


async def test_a_command_that_reads_its_input_returns_at_once(shell: Any) -> None:
    assert await shell.output("cat; readlink /proc/$$/fd/0") == {"stdout": "/dev/null\n", "stderr": "", "returncode": 0}


async def test_both_streams_are_returned_apart(shell: Any) -> None:
    output = await shell.output("echo out; echo err >&2")

    assert output == {"stdout": "out\n", "stderr": "err\n", "returncode": 0}


async def test_a_command_killed_by_a_signal_returns_its_negative_number(shell: Any) -> None:
    result = await shell.run("kill -9 $$")

    assert (result.success, result.output["returncode"]) == (False, -9)


async def test_state_does_not_carry_over(shell: Any) -> None:
    await shell.output("cd /; X=1; export X")

    assert (await shell.output('pwd; echo "[$X]"'))["stdout"].splitlines()[1] == "[]"


async def test_a_command_may_begin_with_a_dash(free_shell: Any) -> None:
    result = await free_shell.run("-e; echo on")

    assert result.output["stdout"] == "on\n"


async def test_bash_reads_no_start_files(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".bashrc", ".bash_profile", ".profile"):
        (tmp_path / name).write_text("echo start file\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_CLIENT", "127.0.0.1 1 1")
    monkeypatch.setenv("SHLVL", "0")

    assert (await shell.output("echo on"))["stdout"] == "on\n"


async def test_what_outlives_the_shell_is_left_running_and_its_command_returns_soon(shell: Any, started: Any) -> None:
    async with asyncio.timeout(30):
        output = await shell.output("(sleep 60 &) ; echo hi")

    assert output["stdout"] == "hi\n"
    assert "still running" in output["note"]
    assert len(started.pids()) == 1
    started.end()


async def test_what_outlives_the_shell_can_go_on_printing(shell: Any, started: Any, tmp_path: Path) -> None:
    script = f"(sleep 0.6; for i in 1 2 3; do echo $i; done; echo done > {tmp_path}/end) & echo hi"

    output = await shell.output(script)
    await asyncio.to_thread(started.wait_for, 0)

    assert output["stdout"] == "hi\n"
    assert (tmp_path / "end").read_text() == "done\n"


# --- environment and directory


async def test_the_environment_is_inherited_and_quiet_unless_set(
    mount_shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LC_KEPT", "1")
    monkeypatch.setenv("MY_API_KEY", "secret")
    shell = await mount_shell(env={"ADDED": "2", "PAGER": "less"}, env_deny=["*_KEY", "AMPLIFIER_*"])

    lines = (await shell.output("env"))["stdout"].splitlines()

    variables = dict(line.split("=", 1) for line in lines)
    expected = {
        "PAGER": "less",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "TERM": "xterm",
        "LC_KEPT": "1",
        "ADDED": "2",
    }
    assert variables.items() >= expected.items()
    assert "MY_API_KEY" not in variables
    outer = {name for name in os.environ if name.startswith("AMPLIFIER_CHILD_")}
    assert outer < {name for name in variables if name.startswith("AMPLIFIER_CHILD_")}


@pytest.mark.parametrize(
    "name",
    ["TOKEN", "GITHUBTOKEN", "GITHUB_PAT", "POSTGRES_URL", "SLACK_WEBHOOK_URL", "MY_PASSPHRASE", "INTERNAL_THING"],
)
async def test_a_variable_that_nobody_passed_on_is_missing_and_a_failed_command_says_so(
    mount_shell: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "canary-of-the-test")
    shell = await mount_shell()

    missing = await shell.run(f"env | grep canary; echo ${{{name}:-none}}; false")
    fine = await shell.run(f"echo ${{{name}:-none}}")

    assert missing.output["stdout"] == fine.output["stdout"] == "none\n"
    note = "variables the command was not given (policy.environment): "
    assert missing.output["note"].startswith(f"{note}{name}")
    assert "canary" not in str(missing.output)
    assert "note" not in fine.output


async def test_a_variable_that_the_policy_names_is_passed_on(
    mount_shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "meant")
    shell = await mount_shell()
    rules = {"environment": {"pass": ["DEPLOY_TOKEN"]}}
    shell.coordinator.register_capability("session.policy", SessionPolicy.of(rules, working_dir=tmp_path))

    assert (await shell.output("echo $DEPLOY_TOKEN"))["stdout"] == "meant\n"


async def test_a_command_runs_where_the_session_works(tmp_path: Path) -> None:
    coordinator = MockCoordinator()
    tool = BashTool({}, coordinator)
    coordinator.register_capability("session.working_dir", str(tmp_path))

    result = await tool.execute({"command": "pwd"})

    assert result.output["stdout"].strip() == str(tmp_path)


async def test_a_missing_directory_is_named(mount_shell: Any) -> None:
    shell = await mount_shell(working_dir="/no/such/directory")

    result = await shell.run("pwd")

    assert result.error["code"] == "not_found"
    assert "/no/such/directory" in result.error["message"]
    assert shell.recorder.events == []


@pytest.mark.parametrize("coordinator", [None, SimpleNamespace(), SimpleNamespace(hooks=None)], ids=repr)
async def test_a_stub_of_a_coordinator_is_enough(coordinator: Any, tmp_path: Path) -> None:
    result = await BashTool({"working_dir": str(tmp_path)}, coordinator).execute({"command": "echo hi"})

    assert result.success, result.error
    assert result.output["stdout"] == "hi\n"


# --- input


@pytest.mark.parametrize(
    "given", [{}, {"command": ""}, {"command": " \n"}, {"command": None}, {"command": 3}, None, "ls"]
)
async def test_a_command_is_required(shell: Any, given: Any) -> None:
    result = await shell.tool.execute(given)

    assert result.error == {"message": "Command is required", "code": "invalid_input"}
    assert result.output == "Command is required"


@pytest.mark.parametrize("given", [0, -1, True, "5", float("nan"), float("inf"), [1]])
async def test_a_timeout_must_be_a_positive_number(shell: Any, given: Any) -> None:
    result = await shell.run("echo hi", timeout=given)

    assert result.error["code"] == "invalid_input"
    assert "timeout" in result.error["message"]


@pytest.mark.parametrize("command", ["echo \0sudo", "echo \ud800", "#" * 131_072], ids=["nul", "surrogate", "long"])
async def test_a_command_that_no_shell_can_be_given_is_refused(shell: Any, command: str) -> None:
    result = await shell.run(command)

    assert result.error["code"] == "invalid_input"


async def test_unknown_keys_and_nulls_are_ignored(shell: Any) -> None:
    result = await shell.run("echo hi", timeout=None, run_in_background=None, _tool_call_id="x")

    assert result.output["stdout"] == "hi\n"


async def test_the_schema_is_the_one_that_is_promised(shell: Any) -> None:
    schema = shell.tool.get_schema()

    shape = {name: (rule["type"], rule.get("default")) for name, rule in schema["properties"].items()}
    assert shape == {"command": ("string", None), "timeout": ("integer", None), "run_in_background": ("boolean", False)}
    assert (schema["type"], schema["required"], schema) == ("object", ["command"], shell.tool.input_schema)


# --- concurrency


async def test_no_more_than_so_many_commands_run_at_once(mount_shell: Any) -> None:
    shell = await mount_shell(max_concurrent=2)
    running = [asyncio.create_task(shell.run("sleep 60")) for _ in range(2)]
    assert await wait_for(lambda: len(shell.told("tool-bash:started")) == 2, timeout=30)

    refused = await shell.run("echo hi")

    assert refused.error["code"] == "concurrency_limit"
    assert "concurrent command limit of 2" in refused.error["message"]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert len(shell.told("tool-bash:started")) == 2


async def test_every_way_out_frees_the_place(mount_shell: Any, tmp_path: Path) -> None:
    shell = await mount_shell(max_concurrent=1)

    for command, options in (("exit 1", {}), ("sleep 60", {"timeout": 0.1}), ("sudo x", {}), ("", {}), ("cd /no", {})):
        await shell.run(command, **options)
    await shell.run("true", run_in_background=True)
    cancelled = asyncio.create_task(shell.run("sleep 60"))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    assert (await shell.run("echo hi")).success


async def test_the_event_loop_goes_on_while_a_command_floods(shell: Any) -> None:
    running = asyncio.create_task(shell.run("yes | head -c 20000000"))
    turns = 0
    while not running.done():
        await asyncio.sleep(0)
        turns += 1

    assert (await running).success
    assert turns > 100


# --- the shell


def test_bash_is_preferred_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, elsewhere = find_shell(), find_shell(tmp_path / "bash")

    assert [shell.name for shell in (usual, elsewhere)] == ["bash", "bash"]
    assert (usual.note, elsewhere.note) == ("", "")


async def test_without_bash_a_plain_shell_runs_the_command_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    shell = find_shell(tmp_path / "bash")
    pad = LaunchPad(Settings({"sandbox": "off"}), None)
    launch = pad.prepare("echo hi", shell, tmp_path, Consent.UNGUARDED, [])

    result = await ForegroundCommands(100, None, Starts()).run(launch, 5.0)

    assert (result.output["stdout"], shell.name) == ("hi\n", "sh")
    assert "bash is not installed" in result.output["note"]
