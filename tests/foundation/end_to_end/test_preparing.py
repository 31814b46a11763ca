"""Bundles and modules from repositories, prepared once: shared by processes, there without a network, side by side."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import BundleRegistry, load_bundle
from amplifier_foundation.spawn import register_spawn

Repository = Callable[..., str]

RUNNABLE = (
    "session: {orchestrator: loop-basic, context: context-simple}\n"
    "providers:\n  - {module: provider-mock, config: {mode: echo}}\n"
)


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command `uv` that installs a distribution `thing` and notes its runs in the returned file."""
    command = tmp_path / "noting" / "uv"
    command.write_text(
        f'#!/bin/sh\necho run >> "{tmp_path}/installed"\nwhile [ "$1" != --target ]; do shift; done\n'
        'mkdir -p "$2/thing-1.0.dist-info"\necho "VALUE = 1" > "$2/thing.py"\n'
    )
    command.chmod(0o755)
    return tmp_path / "installed"


@pytest.fixture
def source(git: Any, installer: Path, repository: Repository, tool_repository: Repository) -> str:
    """A bundle that includes another one; each has a tool in a repository of its own, and one needs `thing`."""
    needy = {
        "pyproject.toml": '[project]\nname = "needy"\nversion = "1"\ndependencies = ["thing==1.0"]\n',
        "amplifier_module_tool_needy/__init__.py": (
            "import thing\n\n\nclass Tool:\n    name = f'needy-{thing.VALUE}'\n    description = 'needy'\n\n"
            "    async def execute(self, input): ...\n\n\n"
            "async def mount(coordinator, config=None):\n    await coordinator.mount('tools', Tool())\n"
        ),
    }
    behaviour = (
        f"bundle: {{name: behaviour}}\ntools:\n  - {{module: tool-needy, source: '{repository('needy', needy)}'}}\n"
    )
    included = repository("behaviour", {"bundle.yaml": behaviour, "context/note.md": "The note."})
    text = (
        f"---\nbundle: {{name: root}}\nincludes: ['{included}']\n{RUNNABLE}"
        f"tools:\n  - {{module: tool-own, source: '{tool_repository('tool-own', tool='own')}'}}\n"
        "---\nKnow @behaviour:context/note.md.\n"
    )
    return repository("root", {"bundle.md": text})


def test_two_processes_that_prepare_the_same_bundle_share_the_work(
    source: str, git: Any, installer: Path, preparing: Any
) -> None:
    results = [preparation.result() for preparation in (preparing(source), preparing(source))]

    assert [result["tools"] for result in results] == [["needy-1", "own"]] * 2
    assert len(git.calls("fetch ")) == 4
    assert installer.read_text() == "run\n"


def test_what_was_prepared_once_is_prepared_again_without_network_repositories_and_processes(
    source: str, tmp_path: Path, git: Any, preparing: Any
) -> None:
    online = preparing(source).result()
    shutil.rmtree(tmp_path / "remote")
    shutil.rmtree(tmp_path / "noting")

    offline = preparing(source, AMPLIFIERD_OFFLINE="1").result()

    assert online["started"] > 0
    assert offline == {**online, "started": 0}


def test_bundles_with_different_versions_of_a_module_run_side_by_side(
    repository: Repository, tool_repository: Repository, preparing: Any
) -> None:
    running = []
    for tag in ("v1", "v2"):
        tool = tool_repository("tool-versioned", tool=f"tool-{tag}", tag=tag)
        text = f"bundle: {{name: {tag}}}\n{RUNNABLE}tools:\n  - {{module: tool-versioned, source: '{tool}'}}\n"
        running.append(preparing(repository(f"bundle-{tag}", {"bundle.yaml": text})))

    assert [preparation.result()["tools"] for preparation in running] == [["tool-v1"], ["tool-v2"]]


async def test_a_task_is_handed_to_an_agent_of_an_included_repository(home: Path, repository: Repository) -> None:
    agent = "---\nmeta: {name: scout, description: Looks around}\n---\nYou are the scout.\n"
    included = repository(
        "agents",
        {"bundle.yaml": "bundle: {name: agents}\nagents: {include: ['agents:scout']}\n", "agents/scout.md": agent},
    )
    script = """
      - when: {contains: start}
        tool_calls: [{name: task, arguments: {agent: "agents:scout", instruction: look left}}]
      - {when: {role: tool}, text: "The agent said: {{last_tool_result}}"}
      - {text: "I heard {{last_user}}"}
"""
    text = (
        f"---\nbundle: {{name: root}}\nincludes: ['{included}']\n"
        "session: {orchestrator: loop-basic, context: context-simple}\n"
        f"providers:\n  - module: provider-mock\n    config:\n      script:{script}"
        "tools: [{module: tool-task}]\n---\nDelegate.\n"
    )
    bundle = await load_bundle(repository("root", {"bundle.md": text}), registry=BundleRegistry(home))
    prepared = await bundle.prepare(strict=True, cache_dir=home / "cache")

    async with prepared.create_session() as session:
        register_spawn(session, prepared, store=home / "sessions")
        answer = await session.execute("start")

    (child,) = (home / "sessions").iterdir()
    assert "I heard look left" in answer
    assert child.name.endswith("_agents-scout")
    assert "look left" in (child / "transcript.jsonl").read_text()
