"""Thirty repositories that include each other: fetched at the same time, each once, and told of."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import BundleRegistry, load_bundle
from amplifier_foundation.sources import ProgressEvent

Commit = Callable[..., str]


def plant(folder: Path, count: int, commit: Commit) -> list[str]:
    """Make repositories, each of which includes the two below it, one elsewhere, and thereby sometimes one above it."""
    sources = [f"git+{(folder / f'bundle-{number}').as_uri()}@main" for number in range(count)]
    for number in range(count):
        below = [other for other in (2 * number + 1, 2 * number + 2, (number + 5) % count) if other < count]
        includes = "".join(f"  - bundle: {sources[other]}\n" for other in dict.fromkeys(below))
        text = (
            f"---\nbundle: {{name: bundle-{number}}}\nincludes:\n{includes}"
            f"agents: {{agent-{number}: {{description: Number {number}}}}}\n"
            "session: {orchestrator: loop-basic, context: context-simple}\n"
            f"providers:\n  - {{module: provider-mock, config: {{mode: echo}}}}\n---\nInstruction {number}.\n"
        )
        commit(folder / f"bundle-{number}", {"bundle.md": text})
    return sources


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory, commit: Commit) -> list[str]:
    return plant(tmp_path_factory.mktemp("thirty"), 30, commit)


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory, commit: Commit) -> list[str]:
    return plant(tmp_path_factory.mktemp("seven"), 7, commit)


def unfinished(home: Path) -> list[Path]:
    return [path for path in home.rglob(".*") if path.is_dir() or path.suffix == ".tmp"]


def trees(home: Path) -> list[str]:
    return [path.name for path in (home / "cache" / "git").iterdir() if path.is_dir() and not path.name.startswith(".")]


async def test_each_repository_is_fetched_once_and_told_of(thirty: list[str], home: Path, git: Any) -> None:
    events: list[ProgressEvent] = []
    registry = BundleRegistry(home, progress=events.append)

    bundle = await load_bundle(thirty[0], registry=registry)

    assert bundle.agents.keys() == {f"agent-{number}" for number in range(30)}
    assert bundle.instruction == "Instruction 0."
    assert registry.list_registered() == sorted(f"bundle-{number}" for number in range(30))
    assert len(git.calls("fetch ")) == 30
    assert sorted({event.ref for event in events if event.phase == "fetching"}) == sorted(thirty)
    assert {event.ref for event in events if event.phase == "ready"} == set(thirty)

    calls = len(git.calls())
    again = await load_bundle(thirty[0], registry=BundleRegistry(home))
    assert again.to_mount_plan() == bundle.to_mount_plan()
    assert len(git.calls()) == calls


@pytest.fixture
async def waiting(seven: list[str], home: Path, git: Any, preparing: Any) -> Any:
    """A process in the middle of its fetches: the root is there, and what it includes is being fetched all at once."""
    await load_bundle(seven[0], registry=BundleRegistry(home), auto_include=False)
    git.close_gate()
    waiting = preparing(seven[0])
    git.wait_for_fetches(1 + 3)
    return waiting


def test_ctrl_c_leaves_no_process_and_nothing_half_written(waiting: Any, home: Path, started: Any) -> None:
    waiting.process.send_signal(signal.SIGINT)
    waiting.process.communicate(timeout=30)

    started.wait_for(0)
    assert waiting.process.returncode != 0
    assert unfinished(home) == []
    assert len(trees(home)) == 1


def test_a_killed_process_leaves_a_cache_that_works(
    waiting: Any, seven: list[str], home: Path, git: Any, preparing: Any, started: Any
) -> None:
    waiting.process.kill()
    waiting.process.communicate(timeout=30)
    started.end()
    assert unfinished(home) != []

    git.open_gate()
    result = preparing(seven[0]).result()

    assert "Hello!" in result["answer"]
    assert unfinished(home) == []
    assert len(trees(home)) == 7


def test_two_processes_that_load_the_same_tree_share_the_work(
    seven: list[str], home: Path, git: Any, preparing: Any
) -> None:
    first, second = preparing(seven[0]), preparing(seven[0])

    assert first.result()["answer"] == second.result()["answer"]
    assert len(git.calls("fetch ")) == 7
    assert unfinished(home) == []
