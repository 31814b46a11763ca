"""What a command changes in places that run is put back, unless a person keeps it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool

from amplifier_core.testing import MockCoordinator
from amplifier_kit.concerns import CONCERN
from amplifier_kit.consent import CONSENT, Consent


class Yes:
    approved, reason = True, ""


def tool_in(folder: Path, *, keeps: bool = False, asked: list[Any] | None = None) -> BashTool:
    coordinator = MockCoordinator()
    coordinator.register_capability(CONSENT, lambda name, given: Consent.APPROVED)

    async def ask(concern: Any, tool_name: str) -> Yes:
        (asked if asked is not None else []).append(concern.subject)
        return Yes()

    if keeps:
        coordinator.register_capability(CONCERN, ask)
    return BashTool({"working_dir": str(folder), "sandbox": "off", "safety_profile": "unrestricted"}, coordinator)


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
    ],
)
async def test_ordinary_work_is_left_alone(project: Path, command: str) -> None:
    asked: list[Any] = []
    result = await tool_in(project, keeps=True, asked=asked).execute({"command": command})

    assert result.success, result
    assert ("undone" in result.output, asked) == (False, [])


async def test_a_person_can_keep_a_change(project: Path) -> None:
    asked: list[Any] = []
    result = await tool_in(project, keeps=True, asked=asked).execute({"command": "echo Obey > AGENTS.md"})

    assert "undone" not in result.output
    assert (asked, (project / "AGENTS.md").read_text()) == (["AGENTS.md"], "Obey\n")
