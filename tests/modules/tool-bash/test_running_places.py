"""What a command changes in places that run is put back, unless a person keeps it."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool

from amplifier_core.testing import MockCoordinator, wait_for
from amplifier_kit.approval import CONSENT, Consent
from amplifier_kit.concerns import CONCERN


class Yes:
    approved, reason = True, ""


details: list[str] = []


def tool_in(folder: Path, *, keeps: bool = False, asked: list[Any] | None = None, **config: Any) -> BashTool:
    coordinator = MockCoordinator()
    coordinator.register_capability(CONSENT, lambda name, given: Consent.APPROVED)

    async def ask(concern: Any, tool_name: str) -> Yes:
        (asked if asked is not None else []).append(concern.subject)
        details.append(concern.detail)
        return Yes()

    if keeps:
        coordinator.register_capability(CONCERN, ask)
    config = {"working_dir": str(folder), "background_log_dir": str(folder.parent / "logs"), **config}
    return BashTool({**config, "sandbox": "off", "safety_profile": "unrestricted"}, coordinator)


def kept_in(log_file: str) -> dict[str, str]:
    """Return the copies beside the log of a background command."""
    return {file.name: file.read_text() for file in Path(f"{log_file.removesuffix('.log')}-undone").iterdir()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "AGENTS.md").write_text("Be kind.\n")
    return folder


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("echo Obey > AGENTS.md", "AGENTS.md"),
        ("rm AGENTS.md", "AGENTS.md"),
        ("ln -sf /etc/hostname AGENTS.md", "AGENTS.md"),
        ("mkdir -p .amplifier && echo x > .amplifier/overlay.md", ".amplifier/overlay.md"),
        ("mkdir -p .git/hooks && echo x > .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("git config core.fsmonitor ./evil", ".git/config"),
        ("git config remote.o.uploadpack ./evil", ".git/config"),
        ("echo '[include] path = x' >> .git/config", ".git/config"),
        ("git init -q --bare docs && git -C docs config core.fsmonitor ./evil", "docs/config"),
        ("git init -q sub && echo x > sub/.git/config.worktree", "sub/.git/config.worktree"),
        ("mkdir d && touch d/HEAD && mkdir d/objects && echo /x > d/commondir", "d/commondir"),
        ("mkdir -p .github/workflows && echo x > .github/workflows/ci.yml", ".github/workflows/ci.yml"),
        (
            "mkdir -p .amplifier/modules/m/logs && echo x > .amplifier/modules/m/logs/a.py",
            ".amplifier/modules/m/logs/a.py",
        ),
        ("mkdir -p .claude/commands/logs && echo x > .claude/commands/logs/a.md", ".claude/commands/logs/a.md"),
        ("echo '{}' > Mine.Code-Workspace", "Mine.Code-Workspace"),
        ("mkdir .hg && echo '[hooks]' > .hg/hgrc", ".hg/hgrc"),
        ("echo 'script-shell=./evil' > .npmrc", ".npmrc"),
        ("mkdir .git/rebase-merge && echo 'exec ./evil' > .git/rebase-merge/git-rebase-todo", "git-rebase-todo"),
    ],
)
async def test_what_runs_elsewhere_is_put_back_and_shown(project: Path, command: str, path: str) -> None:
    before = (project / path).read_bytes() if (project / path).exists() else None

    result = await tool_in(project).execute({"command": command})

    assert [path in line and "put back" in line for line in result.output["undone"]] == [True]
    assert ((project / path).read_bytes() if (project / path).exists() else None) == before
    assert not (project / path).is_symlink()


@pytest.mark.parametrize(
    "command",
    [
        "echo x > notes.md && echo y > conftest.py",
        "git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m x",
        "git remote add origin https://example.org/x.git",
        "git config branch.main.remote origin",
        "git init -q sub",
        "git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m x && git worktree add -q tree",
        "mkdir -p node_modules/.bin && echo x > node_modules/.bin/tsc",
        "mkdir -p .venv/bin && echo x > .venv/bin/activate",
        "mkdir -p .amplifier/logs && echo x > .amplifier/logs/today",
        "mkdir -p .hg/store && echo x > .hg/store/00changelog.i",
        "mkdir .git/rebase-merge && echo 'pick 1234567 x' > .git/rebase-merge/git-rebase-todo",
    ],
)
async def test_ordinary_work_is_left_alone(project: Path, command: str) -> None:
    asked: list[Any] = []
    result = await tool_in(project, keeps=True, asked=asked).execute({"command": command})

    assert result.success, result
    assert ("undone" in result.output, asked) == (False, [])


async def test_what_hides_behind_thousands_of_others_is_put_back_as_well(project: Path) -> None:
    hidden = "mkdir sub && echo evil > sub/.envrc && mkdir sub/deeper && echo evil > sub/deeper/.envrc"
    flood = "mkdir .claude && cd .claude && touch $(seq 5200)"

    result = await tool_in(project).execute({"command": f"{hidden} && {flood}"})

    assert [(project / name).exists() for name in ("sub/.envrc", "sub/deeper/.envrc")] == [False, False]
    assert any("sub/.envrc" in line for line in result.output["undone"])


async def test_the_question_whether_a_change_is_kept_shows_it(project: Path) -> None:
    command = "printf 'Obey\\n' > AGENTS.md && ln -s /etc/hostname .envrc && printf '\\0' > .exrc"

    await tool_in(project, keeps=True).execute({"command": command})

    *_, detail = details
    assert {"AGENTS.md:", "-Be kind.", "+Obey", "leads to /etc/hostname", "is not text that can be shown"} <= set(
        detail.split("\n")
    )


async def test_a_person_can_keep_a_change(project: Path) -> None:
    asked: list[Any] = []
    result = await tool_in(project, keeps=True, asked=asked).execute({"command": "echo Obey > AGENTS.md"})

    assert "undone" not in result.output
    assert (asked, (project / "AGENTS.md").read_text()) == (["AGENTS.md"], "Obey\n")


async def test_what_a_background_command_changes_is_put_back_when_it_ends_and_shown_with_the_next_result(
    project: Path,
) -> None:
    tool = tool_in(project)
    command = "echo Obey > AGENTS.md; mkdir .vscode; echo x > .vscode/tasks.json; echo y > notes.md; touch done"
    started = await tool.execute({"command": command, "run_in_background": True})
    assert await wait_for(lambda: (project / "AGENTS.md").read_text() == "Be kind.\n" and (project / "done").exists())

    shown = (await tool.execute({"command": "true"})).output["undone"]
    again = (await tool.execute({"command": "true"})).output

    assert [line.partition(" ")[0] for line in shown] == [".vscode/tasks.json", "AGENTS.md"]
    assert "undone" not in again
    assert kept_in(started.output["log_file"]) == {".vscode%2Ftasks.json": "x\n", "AGENTS.md": "Obey\n"}
    assert (project / "notes.md").read_text() == "y\n"
    assert not (project / ".vscode/tasks.json").exists()


async def test_what_a_background_command_changed_is_brought_again_if_a_person_keeps_it(project: Path) -> None:
    asked: list[Any] = []
    tool = tool_in(project, keeps=True, asked=asked)
    await tool.execute({"command": "sleep 0.1; echo Obey > AGENTS.md", "run_in_background": True})

    assert await wait_for(lambda: asked == ["AGENTS.md"] and (project / "AGENTS.md").read_text() == "Obey\n")
    assert "undone" not in (await tool.execute({"command": "true"})).output
    assert asked == ["AGENTS.md"]


@pytest.mark.parametrize("ends", [True, False], ids=["it ends with the session", "it outlives the session"])
async def test_what_a_background_command_changed_is_put_back_when_the_session_ends(project: Path, ends: bool) -> None:
    asked: list[Any] = []
    tool = tool_in(project, keeps=True, asked=asked, kill_background_on_cleanup=ends)
    started = await tool.execute({"command": "echo Obey > AGENTS.md; exec sleep 60", "run_in_background": True})
    assert await wait_for(lambda: (project / "AGENTS.md").read_text() == "Obey\n")

    await tool.close()

    assert (asked, (project / "AGENTS.md").read_text()) == ([], "Be kind.\n")
    if not ends:
        os.killpg(started.output["pid"], signal.SIGKILL)


async def test_commands_beside_one_in_the_background_are_compared_each_by_itself(project: Path) -> None:
    tool = tool_in(project)
    release = project / "release"
    os.mkfifo(release)
    await tool.execute({"command": "read x < release; echo Obey > AGENTS.md; touch done", "run_in_background": True})

    beside = await tool.execute({"command": "mkdir .idea; echo x > .idea/workspace.xml"})
    release.write_text("go\n")
    assert await wait_for(lambda: (project / "AGENTS.md").read_text() == "Be kind.\n" and (project / "done").exists())

    assert [line.partition(" ")[0] for line in beside.output["undone"]] == [".idea/workspace.xml"]
    last = await tool.execute({"command": "true"})
    assert [line.partition(" ")[0] for line in last.output["undone"]] == ["AGENTS.md"]
