"""Real git repositories to fetch from, over file://."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

_CONFIGURATION = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"


class Repository:
    """A repository to fetch from."""

    def __init__(self, path: Path) -> None:
        self.path = path  # what `git init` would write, in a process of its own
        for directory in ("objects", "refs/heads"):
            (path / ".git" / directory).mkdir(parents=True)
        (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (path / ".git/config").write_text(_CONFIGURATION)

    @property
    def source(self) -> str:
        return f"git+{self.path.as_uri()}"

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "maintenance.auto=false", *arguments]  # which would start more processes
        done = subprocess.run(command, cwd=self.path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str | bytes | None], *, tag: str | None = None) -> str:
        """Write files, remove those that are None, and return the commit."""
        write_files(self.path, files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "Change")
        if tag:
            self.git("tag", tag)
        return self._head()

    def _head(self) -> str:
        """Return the last commit of the branch that is checked out."""
        branch = (self.path / ".git/HEAD").read_text().removeprefix("ref: ").strip()
        return (self.path / ".git" / branch).read_text().strip()


def write_files(root: Path, files: Mapping[str, str | bytes | None]) -> None:
    for name, content in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            target.unlink()
        else:
            target.write_bytes(content.encode() if isinstance(content, str) else content)


def use_plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git as it comes, and no settings of ours from outside, whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith("AMPLIFIERD_") or name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_SSH", "GIT_SSH_COMMAND"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A Tester")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "tester@example.invalid")
