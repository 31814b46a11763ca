"""Commands in a sandbox: what one that nobody was asked about can do, what an approved one can, and what is told."""

import asyncio
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool
from sandboxes import PYTHON, fingerprint, needs_sandbox, place_outside_tmp

from amplifier_core.testing import wait_for
from amplifier_kit.approval import CONSENT, Consent
from amplifier_kit.policy import SessionPolicy

NO_SANDBOX = "amplifier_module_tool_bash.launch.find_sandbox"


def answer(shell: Any, consent: Consent) -> None:
    """Let the session's guard say this of every call."""
    shell.coordinator.register_capability(CONSENT, lambda tool_name, tool_input: consent)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory outside `/tmp` with a home in which a key lies, and a repository to work in."""
    with place_outside_tmp() as directory:
        (directory / "home/.ssh").mkdir(parents=True)
        (directory / "home/.ssh/id_rsa").write_text("private key")
        (directory / "work").mkdir()
        monkeypatch.setenv("HOME", str(directory / "home"))
        subprocess.run(["git", "init", "--quiet"], cwd=directory / "work", check=True)
        yield directory


@pytest.fixture
async def shell(mount_shell: Any, place: Path) -> Any:
    """The tool in a sandbox, or not at all."""
    return await mount_shell(sandbox="required", working_dir=str(place / "work"), safety_profile="unrestricted")


@needs_sandbox
async def test_what_nobody_was_asked_about_changes_nothing(shell: Any, place: Path) -> None:
    answer(shell, Consent.UNASKED)
    before = fingerprint(place)

    result = await shell.run("touch made; touch ~/made; echo x > .git/config; rm -rf .git; cat ~/.ssh/id_rsa")

    assert not result.success
    assert "private key" not in str(result.output)
    assert fingerprint(place) == before


@needs_sandbox
async def test_what_nobody_was_asked_about_reaches_no_network(shell: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected"

        answer(shell, Consent.UNASKED)
        assert "connected" not in (await shell.run(command)).output["stdout"]
        answer(shell, Consent.APPROVED)
        assert "connected" in (await shell.run(command)).output["stdout"]


@needs_sandbox
@pytest.mark.parametrize("consent", [Consent.APPROVED, Consent.UNGUARDED])
async def test_an_approved_command_changes_what_the_policy_allows(shell: Any, place: Path, consent: Consent) -> None:
    answer(shell, consent)

    await shell.run("touch made; touch ~/made; cat ~/.ssh/id_rsa >> made")

    assert (place / "work/made").read_text() == ""
    assert not (place / "home/made").exists()


@needs_sandbox
async def test_an_approved_commit_from_a_folder_of_the_repository_works(mount_shell: Any, place: Path) -> None:
    (place / "work/src").mkdir()
    shell = await mount_shell(sandbox="required", working_dir=str(place / "work/src"))
    nobody = "-c user.name=x -c user.email=x@localhost"

    await shell.output(f"echo x > file && git add file && git {nobody} commit -m first")

    assert (await shell.output("git log --format=%s"))["stdout"] == "first\n"


@needs_sandbox
@pytest.mark.parametrize("kind", ["repository", "worktree", "submodule"])
async def test_approved_git_does_its_work_and_changes_no_hook(mount_shell: Any, place: Path, kind: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@localhost", "GIT_CONFIG_NOSYSTEM": "1"}
    identity |= {"GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@localhost"}

    def git(directory: Path, *arguments: str) -> None:
        command = ["git", "-c", "protocol.file.allow=always", *arguments]
        subprocess.run(command, cwd=directory, check=True, capture_output=True, env=os.environ | identity)

    work, repository = place / "work", place / "work/.git"
    git(work, "commit", "--allow-empty", "-m", "first")
    git(work, "init", "--quiet", "--bare", "remote.git")
    if kind == "worktree":
        git(work, "worktree", "add", str(place / "tree"))
        work = place / "tree"
    if kind == "submodule":
        git(place, "clone", "--quiet", str(work), "origin")
        git(work, "submodule", "add", "--quiet", str(place / "origin"), "inner")
        work, repository = work / "inner", work / ".git/modules/inner"
    shell = await mount_shell(sandbox="required", working_dir=str(work), env=identity, safety_profile="unrestricted")
    answer(shell, Consent.APPROVED)

    result = await shell.run(
        "set -e; git checkout -q -b topic; git init -q --bare own.git; echo x > file; git add file; git commit -qm a;"
        " git remote add here ./own.git; git push -qu here topic; echo y > file; git stash -q; git stash pop -q;"
        " git config branch.topic.description words; git gc -q; git worktree add -q ./other; git status"
    )

    assert result.success, result.output
    hostile = await shell.run(
        f"cd {repository}; echo 'touch ran' > hooks/pre-commit; mkdir hooks; rm -rf hooks; mv hooks moved;"
        f" echo '* filter=x' > info/attributes; mv info moved; rm -f info/attributes; cd; mv {repository} {work}/gone"
    )
    assert hostile.output["stderr"].count("Read-only file system") >= 2
    assert list((repository / "hooks").glob("pre-commit")) == []
    assert (repository / "info/attributes").read_text() == ""
    assert (repository / "info").is_dir()  # it can be emptied, not moved away


@needs_sandbox
async def test_the_policy_of_the_session_counts(shell: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "1")
    rules = {
        "write": {"allow": ["./out"]},
        "read": {"deny": ["./vault"]},
        "network": {"allow": []},
        "environment": {"pass": ["PASSED"], "deny": ["HOME"]},
    }
    for name in ("out", "vault"):
        (place / "work" / name).mkdir()
    (place / "work/vault/key").write_text("private key")
    policy = SessionPolicy.of(rules, working_dir=place / "work")
    shell.coordinator.register_capability("session.policy", policy)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        result = await shell.run(
            "touch out/made; touch made; cat vault/key; env | cut -d= -f1;"
            f" (exec 3<>/dev/tcp/127.0.0.1/{port}) && echo far"
        )

    assert (place / "work/out/made").exists()
    assert not (place / "work/made").exists()
    names = {name for name in result.output["stdout"].split() if not name.startswith("AMPLIFIER_CHILD_")}
    assert "PASSED" in names
    assert names.isdisjoint({"HOME", "far", "private"})


async def test_secret_variables_stay_outside_with_and_without_a_sandbox(
    mount_shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "secret")
    monkeypatch.setenv("LC_PLAIN", "plain")

    for mode in ("auto", "off"):
        shell = await mount_shell(sandbox=mode, env={"GIVEN_TOKEN": "given"})
        output = await shell.output("echo ${SERVICE_API_KEY:-none} $LC_PLAIN $GIVEN_TOKEN")
        assert output["stdout"] == "none plain given\n"


@needs_sandbox
async def test_a_hostile_repository_runs_nothing_of_its_own_unasked(shell: Any, place: Path) -> None:
    hook = place / "work/.git/hooks/post-index-change"
    hook.write_text("#!/bin/sh\necho hook ran >&2\n")
    hook.chmod(0o755)
    await shell.output("git config core.fsmonitor 'echo monitor ran >&2; false'")

    answer(shell, Consent.UNASKED)
    output = await shell.output("git status; git config core.fsmonitor; git config core.hooksPath")

    assert output["stdout"].endswith("false\n/dev/null\n")
    assert "ran" not in output["stderr"]


async def test_git_settings_of_the_environment_are_kept(mount_shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "somebody")
    shell = await mount_shell()
    rules = {"environment": {"pass": ["GIT_CONFIG_*"]}}
    shell.coordinator.register_capability("session.policy", SessionPolicy.of(rules, working_dir="/"))
    answer(shell, Consent.UNASKED)

    output = await shell.output("git config user.name; git config core.fsmonitor")

    assert output["stdout"] == "somebody\nfalse\n"


@needs_sandbox
async def test_everything_a_command_started_ends_with_it(shell: Any, started: Any) -> None:
    output = await shell.output("(setsid env -i sleep 60 &); nohup sleep 60 & echo done")

    assert "still running" not in output.get("note", "")
    assert output["stdout"] == "done\n"
    assert started.pids() == []


@needs_sandbox
async def test_a_timeout_asks_the_command_to_stop_and_keeps_what_it_printed(shell: Any, started: Any) -> None:
    result = await shell.run("trap 'echo stopped; exit' TERM; echo begun; sleep 60 & wait", timeout=0.5)

    assert result.error["code"] == "timeout"
    assert result.error["stdout"] == "begun\nstopped\n"
    assert started.pids() == []


@needs_sandbox
async def test_a_cancelled_command_leaves_nothing(shell: Any, started: Any) -> None:
    running = asyncio.create_task(shell.run("trap '' TERM; (setsid sleep 60 &); sleep 60; sleep 60"))
    await asyncio.sleep(0.2)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert started.pids() == []


@needs_sandbox
async def test_a_background_command_ends_at_cleanup_and_its_log_can_be_read(shell: Any, started: Any) -> None:
    output = await shell.output("echo begun; (setsid sleep 60 &); sleep 60", run_in_background=True)
    assert await wait_for(lambda: Path(output["log_file"]).read_text() == "begun\n", timeout=30)

    assert (await shell.output(f"cat {output['log_file']}"))["stdout"] == "begun\n"
    assert "kill" not in output["note"]
    await shell.cleanup()

    assert started.pids() == []
    assert len([data for data in shell.told("tool-bash:finished") if data["background"]]) == 1


@needs_sandbox
async def test_limits_of_the_configuration_hold(mount_shell: Any, place: Path) -> None:
    shell = await mount_shell(sandbox="required", memory_mb="200", cpu_seconds=30, processes=500)

    result = await shell.run(f"{shlex.quote(PYTHON)} -S -c 'bytes(300 << 20)'")

    assert "MemoryError" in result.output["stderr"]


async def test_limits_hold_without_a_sandbox(mount_shell: Any) -> None:
    shell = await mount_shell(sandbox="off", memory_mb=200)

    result = await shell.run(f"{shlex.quote(PYTHON)} -S -c 'bytes(300 << 20)'")

    assert "MemoryError" in result.output["stderr"]


async def test_without_a_sandbox_required_refuses(mount_shell: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(NO_SANDBOX, lambda: None)
    shell = await mount_shell(sandbox="required")

    result = await shell.run("touch made")

    assert result.error["code"] == "sandbox_unavailable"
    assert "extra `sandbox`" in result.error["message"]
    assert not (tmp_path / "made").exists()
    assert shell.recorder.events == []


async def test_without_a_sandbox_auto_runs_and_says_so(mount_shell: Any, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(NO_SANDBOX, lambda: None)
    shell = await mount_shell(sandbox="auto")

    first, second = await shell.output("echo 1"), await shell.output("echo 2")
    late = await shell.run("sleep 60", timeout=0.1)
    background = await shell.output("true", run_in_background=True)

    assert (first["stdout"], second["stdout"]) == ("1\n", "2\n")
    assert "no sandbox works" in first["note"]
    assert "note" not in second
    assert [found["metadata"] for found in (first, second, late.error, background)] == [{"sandbox": "none"}] * 4
    assert [record.message for record in caplog.records if "no sandbox works" in record.message] == [first["note"]]


async def test_a_missing_sandbox_is_told_although_the_first_command_timed_out(
    mount_shell: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(NO_SANDBOX, lambda: None)
    shell = await mount_shell(sandbox="auto")

    await shell.run("sleep 60", timeout=0.1)

    assert "no sandbox works" in (await shell.output("echo 1"))["note"]


async def test_off_is_what_was_asked_for_and_says_nothing(shell_off: Any) -> None:
    assert set(await shell_off.output("echo 1")) == {"stdout", "stderr", "returncode"}


@pytest.fixture
async def shell_off(mount_shell: Any) -> Any:
    return await mount_shell(sandbox=False)  # what YAML makes of a bare `off`


async def test_a_value_that_nobody_understands_closes(caplog: Any) -> None:
    assert BashTool({"sandbox": "requierd"}).settings.sandbox == "required"
    assert BashTool({"sandbox": True}).settings.sandbox == "required"
    assert BashTool({}).settings.sandbox == "auto"
    assert "'sandbox' is 'requierd'" in caplog.text


@needs_sandbox
async def test_a_sandbox_that_cannot_be_set_up_is_not_an_exit_of_the_command(mount_shell: Any, place: Path) -> None:
    shell = await mount_shell(sandbox="required", working_dir=str(place / "home/.ssh/deep"))
    (place / "home/.ssh/deep").mkdir()

    result = await shell.run("true")

    assert result.error["code"] == "sandbox_failed"
    assert "bwrap" in result.error["message"]


@pytest.mark.parametrize(
    ("consent", "code"),
    [(Consent.APPROVED, None), (Consent.UNASKED, "command_denied"), (Consent.UNGUARDED, "command_denied")],
)
async def test_a_command_that_is_not_understood_runs_only_when_somebody_said_yes(
    mount_shell: Any, consent: Consent, code: str | None
) -> None:
    shell = await mount_shell()
    answer(shell, consent)

    result = await shell.run(f"echo {'x' * 70_000} > /dev/null")

    assert (result.error or {}).get("code") == code


async def test_a_yes_does_not_outrank_a_rule(mount_shell: Any) -> None:
    shell = await mount_shell()
    answer(shell, Consent.APPROVED)

    assert (await shell.run("sudo x")).error["code"] == "command_denied"
