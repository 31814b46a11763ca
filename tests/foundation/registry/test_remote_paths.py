"""A bundle from elsewhere cannot refer to files of this machine."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "stand_ins"))

from git_repository import Repository, use_plain_git

from amplifier_foundation import BundleRegistry
from amplifier_foundation.exceptions import BundleError

BUNDLE = "---\nbundle: {{name: b, version: 1.0.0}}\n{extra}\n---\nHello.\n"


@pytest.mark.parametrize(
    "extra",
    [
        "context: {x: /etc/hosts}",
        "context: {x: ~/.ssh/id}",
        "tools: [{module: tool-x, source: /srv/tool-x}]",
        "tools: [{module: tool-x, source: ~/tool-x}]",
        "session: {orchestrator: {module: loop-x, source: 'file:///srv/loop-x'}}",
        "session: {orchestrator: loop-x, orchestrator_source: /srv/loop-x}",
        "session: {context: context-x, context_source: 'file:///srv/context-x'}",
        "spawn: {tools: [{module: tool-x, source: /srv/tool-x}]}",
        "includes: [/srv/b.md]",
        "includes: [~/b.md]",
        "includes: [{bundle: 'file:///srv/b'}]",
        "includes: [zip+file:///srv/b.zip]",
        "agents: {a: {tools: [{module: tool-x, source: /srv/tool-x}]}}",
        "agents: {a: {session: {orchestrator: loop-x, orchestrator_source: /srv/loop-x}}}",
    ],
)
async def test_a_fetched_bundle_names_no_path_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "origin")
    repository.commit({"bundle.md": BUNDLE.format(extra=extra)})
    registry = BundleRegistry(home=tmp_path / "home")

    with pytest.raises(BundleError, match="bad-ref: local path in a remote profile"):
        await registry.load(f"{repository.source}@main")


async def test_what_came_with_it_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "origin")
    named = "session: {orchestrator: loop-x, orchestrator_source: ./modules/loop-x}"
    extra = f"context: {{x: notes.md}}\ntools: [{{module: tool-x, source: ./modules/tool-x}}]\n{named}"
    repository.commit({"bundle.md": BUNDLE.format(extra=extra), "notes.md": "", "modules/tool-x/x.py": ""})

    bundle = await BundleRegistry(home=tmp_path / "home").load(f"{repository.source}@main")

    assert bundle.tools[0]["source"].endswith("/modules/tool-x")
    assert bundle.session["orchestrator_source"].endswith("/modules/loop-x")
    assert [*bundle.context] == ["x"]
