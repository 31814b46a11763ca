"""What the model is told of its place, and that requests begin alike."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_status_context import mount
from amplifier_module_hooks_status_context.git_status import GitOptions, matches, shown_status

from amplifier_core import AmplifierSession
from amplifier_core.testing import MockCoordinator
from amplifier_kit.contexts.compacting import CompactingContext

GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")


def git(directory: Path, *command: str) -> None:
    subprocess.run([*GIT, *command], cwd=directory, check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    (tmp_path / "a.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "Add a")
    return tmp_path


class Session:
    """A coordinator with a context of ours, in which the hook works."""

    def __init__(self, directory: Path, session_id: str = "parent-1") -> None:
        self.coordinator = MockCoordinator()
        self.coordinator.session_id = session_id
        self.coordinator.register_capability("session.working_dir", str(directory))
        self.context = CompactingContext(max_tokens=100_000)

    async def begin(self, **config: Any) -> "Session":
        await self.coordinator.mount("context", self.context)
        self.cleanup = await mount(self.coordinator, config)
        return self

    async def turn(self) -> tuple[str, str | None]:
        """Return the beginning of the request of a turn, and what goes with the request."""
        await self.coordinator.hooks.emit("prompt:submit", {"prompt": "x"})
        await self.context.add_message({"role": "user", "content": "x"})
        answer = await self.coordinator.hooks.emit("provider:request", {})
        first = (await self.context.get_messages_for_request())[0]
        injection = answer.context_injection if answer.action == "inject_context" else None
        return str(first["content"]), injection


async def test_the_block_stands_in_the_system_prompt_and_stays_as_it_is(repository: Path) -> None:
    session = await Session(repository).begin()

    first, injected = await session.turn()
    (repository / "b.py").write_text("2\n")
    second, update = await session.turn()

    assert first.startswith('<system-reminder source="hooks-status-context">\nWhere you work:\n<env>\n')
    assert f"Working directory: {repository}\nSession ID: parent-1\nIs directory a git repo: Yes\n" in first
    assert "Current branch: main\n\nMain branch: main\n\nStatus:\n(clean)\n\nRecent commits:\n" in first
    assert injected is None
    assert second == first
    assert update is not None
    assert "Update: this has changed since the session began." in update
    assert "?? b.py" in update
    session.cleanup()
    assert (await session.context.get_messages_for_request())[0]["role"] == "user"


async def test_it_can_go_with_every_request_instead(tmp_path: Path) -> None:
    session = await Session(tmp_path).begin(placement="request", include_datetime=False, include_session=False)

    first, injected = await session.turn()

    assert first == "x"
    assert injected is not None
    assert "Is directory a git repo: No" in injected
    assert "date" not in injected
    assert "Session" not in injected


async def test_a_context_that_takes_a_factory_gets_the_block_with_it(tmp_path: Path) -> None:
    class Foreign:
        factory: Any = None

        async def set_system_prompt_factory(self, factory: Any) -> None:
            self.factory = factory

    session = Session(tmp_path)
    session.context = Foreign()  # type: ignore[assignment]
    await session.begin()

    async def prompt() -> str:
        return "You are an assistant."

    await session.coordinator.get("context").set_system_prompt_factory(prompt)

    text = await session.coordinator.get("context").factory()
    assert text.startswith('You are an assistant.\n\n<system-reminder source="hooks-status-context">')


async def test_a_directory_without_a_repository_starts_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    (tmp_path / "work").mkdir()

    await (await Session(tmp_path / "work").begin()).turn()

    assert not (tmp_path / "was-started").exists()


async def test_a_repository_cannot_have_programs_run(repository: Path, tmp_path: Path) -> None:
    watcher = tmp_path / "watcher"
    watcher.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-started\n")
    watcher.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(watcher))

    await (await Session(repository).begin()).turn()

    assert not (tmp_path / "was-started").exists()


async def test_a_child_session_says_so() -> None:
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-mock", "config": {"mode": "echo"}}],
        "hooks": [{"module": "hooks-status-context"}],
    }
    async with AmplifierSession(plan, session_id="child", parent_id="above") as session:
        await session.execute("x")
        (prompt, *_) = await session.coordinator.get("context").get_messages_for_request()

    assert "Parent session ID: above\nIs sub-session: Yes\n" in prompt["content"]


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("env/x.py", "env/**", True),
        ("environment.py", "env/**", False),
        ("environment.py", "env/", False),
        ("src/node_modules/x.js", "node_modules/", True),
        ("a/b.pyc", "*.pyc", True),
        ("docs/build", "/build", False),
        ("build/x", "/build", True),
        ("a/b/c.txt", "a/*.txt", False),
        ("a/b/c.txt", "a/**/c.txt", True),
        ("uv.lock", "*.lock", True),
    ],
)
def test_patterns_mean_what_they_mean_in_a_gitignore(path: str, pattern: str, expected: bool) -> None:
    assert matches(path, (pattern,)) is expected


def test_a_long_status_is_cut_with_a_word() -> None:
    porcelain = "\n".join(
        [f" M src/{number}.py" for number in range(4)]
        + [f"?? n{number}.txt" for number in range(3)]
        + ["?? node_modules/", " M a.lock", " M b.lock"]
    )

    text = shown_status(porcelain, GitOptions(max_tracked=2, max_untracked=1, limited_most=1))

    assert text.splitlines() == [
        " M src/0.py",
        " M src/1.py",
        "… 3 more changed files",
        "?? n0.txt",
        "… 2 more untracked files",
        "(2 generated or vendored files are left out)",
    ]
