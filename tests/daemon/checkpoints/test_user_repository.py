"""The user's own repository: git never looks at it, nothing it configures ever runs, and not one byte of it changes."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from amplifierd.checkpoints import Checkpoints

from .conftest import Picture, picture


def git(work: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=work, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def repository(work: Path) -> Path:
    """A repository with a commit, a staged and an unstaged change, a stash and a repository inside."""
    git(work, "init")
    (work / ".gitignore").write_text("ignored/\n*.log\n")
    git(work, "add", ".")
    git(work, "commit", "-m", "Start")
    (work / "notes.md").write_text("stashed\n")
    git(work, "stash")
    (work / "staged.txt").write_text("staged\n")
    git(work, "add", "staged.txt")
    (work / "notes.md").write_text("not staged\n")
    (work / "vendor" / "lib").mkdir(parents=True)
    (work / "vendor" / "lib" / "code.py").write_text("code\n")
    git(work / "vendor" / "lib", "init")
    git(work / "vendor" / "lib", "add", ".")
    git(work / "vendor" / "lib", "commit", "-m", "Inner")
    return work


def repositories(work: Path) -> dict[str, tuple[Picture, dict[str, int]]]:
    """Return every byte below each `.git`, and the time of each file's last change."""
    found = {}
    for place in work.rglob(".git"):
        times = {str(path): path.lstat().st_ctime_ns for path in place.rglob("*")}
        found[str(place)] = (picture(place), times)
    return found


async def test_repository_index_config_and_stash_stay_bit_identical(checkpoints: Checkpoints, repository: Path) -> None:
    standing = repositories(repository)
    assert len(standing) == 2

    before = await checkpoints.take(1)
    (repository / "staged.txt").unlink()
    (repository / "vendor" / "lib" / "code.py").write_text("changed\n")
    (repository / "src" / "main.py").write_text("changed\n")
    after = await checkpoints.take(1, label="after")
    changes = await checkpoints.changes(before, after)
    result = await checkpoints.undo(before, after)

    assert repositories(repository) == standing
    assert changes.deleted == ("staged.txt",)
    assert changes.modified == ("src/main.py", "vendor/lib/code.py")
    assert result.done
    assert (repository / "vendor" / "lib" / "code.py").read_text() == "code\n"


async def test_an_undo_leaves_a_repository_alone_that_the_turn_made(checkpoints: Checkpoints, work: Path) -> None:
    before = await checkpoints.take(1)
    git(work, "init", "made")
    (work / "made" / "file").write_text("x")
    after = await checkpoints.take(1, label="after")

    result = await checkpoints.undo(before, after)

    assert (result.restored, result.not_empty) == (("made/file",), ("made",))
    assert (work / "made" / ".git" / "HEAD").exists()


async def test_no_filter_hook_monitor_or_driver_of_anybody_ever_runs(
    checkpoints: Checkpoints, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "it-ran"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    trap.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman"):
        (hooks / name).symlink_to(trap)
    config = "\n".join(
        [
            f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {hooks}\n\tpager = {trap}\n\teditor = {trap}",
            f"\tattributesFile = {tmp_path / 'attributes'}\n\tsshCommand = {trap}",
            f'[filter "trap"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true',
            f'[diff]\n\texternal = {trap}\n[diff "trap"]\n\ttextconv = {trap}\n\tcommand = {trap}',
            "[alias]\n\tdiff-tree = !" + str(trap),
        ]
    )
    (tmp_path / "attributes").write_text("* filter=trap diff=trap\n")
    (repository / ".gitattributes").write_text("* filter=trap diff=trap\n")
    for place in (repository / ".git", repository / "vendor" / "lib" / ".git"):
        (place / "config").write_text((place / "config").read_text() + config + "\n")
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".gitconfig").write_text(config)
    (home / ".config" / "git" / "config").write_text(config)
    (home / ".config" / "git" / "attributes").write_text("* filter=trap diff=trap\n")
    settings = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": str(home / ".gitconfig"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "diff.external",
        "GIT_CONFIG_VALUE_0": str(trap),
        "GIT_EXTERNAL_DIFF": str(trap),
        "GIT_PAGER": str(trap),
        "GIT_DIR": str(repository / ".git"),
        "GIT_WORK_TREE": str(repository),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    before = await checkpoints.take(1)
    (repository / "notes.md").write_text("changed\n")
    after = await checkpoints.take(1, label="after")
    changes = await checkpoints.changes(before, after)
    await checkpoints.undo(before, after)

    assert "+changed\n" in changes.diff
    assert not marker.exists()
    with suppress(subprocess.CalledProcessError):
        git(repository, "diff")
    assert marker.exists(), "the trap itself has to work"


async def test_what_is_kept_does_not_depend_on_line_endings_or_filters(
    checkpoints: Checkpoints, repository: Path
) -> None:
    git(repository, "config", "core.autocrlf", "input")
    (repository / ".gitattributes").write_text("* text eol=crlf ident\n")
    (repository / "windows.txt").write_bytes(b"one\r\n$Id$\r\n")
    before = await checkpoints.take(1)
    (repository / "windows.txt").unlink()
    after = await checkpoints.take(1, label="after")

    await checkpoints.undo(before, after)

    assert (repository / "windows.txt").read_bytes() == b"one\r\n$Id$\r\n"
