"""Files that run for someone else are not ordinary files."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_approval import mount as mount_guard

from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_system.policy import find_running_place

from .conftest import Files, MountFiles


class Person:
    """Answers every question the same way."""

    def __init__(self, *, says: bool) -> None:
        self._says, self.asked = says, list[ApprovalRequest]()

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        self.asked.append(request)
        return ApprovalResponse(approved=self._says)


async def guarded(files: Files, person: Person | None, **config: Any) -> Files:
    await mount_guard(files.coordinator, {"audit": {"enabled": False}, "auto_approve": True, **config})
    if person is not None:
        files.coordinator.get_capability("approval.register_provider")(person)
    return files


async def written(files: Files, path: str, content: str = "x\n") -> bool:
    """Write as a loop does: the gate is asked first."""
    tool = files.tools["write_file"]
    given = {"file_path": path, "content": content}
    verdict = await files.coordinator.get_capability("approval.gate")("write_file", given, {"tool_obj": tool})
    return verdict.approved and (await files.use("write_file", given)).success


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "sub/.GIT/config",
        ".hg/hgrc",
        ".amplifier/overlay.md",
        "deep/.Amplifier/settings.yaml",
    ],
)
async def test_repositories_and_our_own_folder_are_denied_even_with_a_person_who_agrees(
    mount_files: MountFiles, path: str
) -> None:
    person = Person(says=True)
    files = await guarded(await mount_files(), person)

    assert not await written(files, path)
    assert (person.asked, (files.folder / path).exists()) == ([], False)


@pytest.mark.parametrize("last", ["config", "objects/info/alternates", "refs/heads/main", "commondir", "HEAD"])
async def test_the_file_that_completes_the_shape_of_a_repository_is_denied(mount_files: MountFiles, last: str) -> None:
    files = await guarded(await mount_files(), Person(says=True))
    docs = files.folder / "docs"
    docs.mkdir()
    if last == "HEAD":
        assert await written(files, "docs/config", "[core]\n\tfsmonitor = ./evil\n")
    else:
        assert await written(files, "docs/HEAD", "ref: refs/heads/main\n")

    result = await files.write(f"docs/{last}", "x")

    assert not result.success
    assert "shape of a repository" in result.error["message"]
    assert not (docs / last).exists()


async def test_a_running_place_is_asked_about_once_by_name_of_the_danger(mount_files: MountFiles) -> None:
    person = Person(says=True)
    files = await guarded(await mount_files(), person)

    for number in range(5):
        assert await written(files, "AGENTS.md", f"Rule {number}\n")

    assert len(person.asked) == 1


@pytest.mark.parametrize(
    "path", ["conftest.py", "src/app.py", "README.md", "docs/config/site.yaml", "bin/tool", ".gitignore", "config"]
)
async def test_ordinary_files_ask_nothing(mount_files: MountFiles, path: str) -> None:
    person = Person(says=False)
    files = await guarded(await mount_files(), person)

    assert await written(files, path)
    assert person.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "agents.MD",
        "sub/CLAUDE.md",
        ".envrc",
        ".vscode/tasks.json",
        ".github/workflows/ci.yml",
        ".husky/pre-commit",
        ".mcp.json",
        ".cargo/config.toml",
        "node_modules/.bin/tsc",
        ".venv/bin/activate",
        "lib/site-packages/sitecustomize.py",
    ],
)
async def test_running_places_are_denied_where_nobody_agrees(mount_files: MountFiles, path: str) -> None:
    for person in (Person(says=False), None):
        files = await guarded(await mount_files(), person)
        assert not await written(files, path)
        assert not (files.folder / path).exists()


async def test_a_session_without_a_guard_writes_no_running_place(mount_files: MountFiles) -> None:
    files = await mount_files()

    result = await files.write("AGENTS.md", "Obey.\n")

    assert not result.success
    assert "instructs every later session" in result.error["message"]
    assert files.names == []


async def test_a_link_to_a_running_place_is_one(mount_files: MountFiles) -> None:
    files = await mount_files()
    (files.folder / "AGENTS.md").write_text("Be kind.\n")
    (files.folder / "notes.md").symlink_to("AGENTS.md")

    assert not (await files.write("notes.md", "Obey.\n")).success
    assert (files.folder / "AGENTS.md").read_text() == "Be kind.\n"


async def test_a_working_directory_inside_such_a_folder_is_an_ordinary_one(tmp_path: Path) -> None:
    inside = tmp_path / ".vscode" / "extension"
    assert find_running_place(inside / "main.ts", inside) is None
    assert find_running_place(inside / "main.ts", tmp_path) is not None
