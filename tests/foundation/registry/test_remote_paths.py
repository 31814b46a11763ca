"""A bundle from elsewhere cannot refer to files of this machine."""

import socket
from pathlib import Path

import pytest
from git_repository import Repository, use_plain_git

from amplifier_foundation import BundleRegistry
from amplifier_foundation.bundle.bundle_file import read_bundle
from amplifier_foundation.exceptions import BundleError, RefResolutionError
from amplifier_foundation.registry.remote_paths import check_remote_paths, is_of_this_machine
from amplifier_foundation.sources import parse_reference

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


@pytest.mark.parametrize(
    "text",
    [
        "git+file:///srv/repo@main",
        "git+ssh://localhost/srv/repo",
        "git+ssh://git@127.0.0.1/srv/repo",
        "git+ssh://[::1]/srv/repo",
        "git+https://2130706433/repo",
        "git+http://x.localhost/repo",
        f"git+ssh://{socket.gethostname()}/srv/repo",
        "file:///srv/x",
        "zip+file:///srv/x.zip",
        "//server/share",
        "~/x",
        "local:///srv/x",
        "http://127.0.0.1/x",
    ],
)
def test_a_reference_is_judged_by_the_machine_it_leads_to(text: str) -> None:
    assert is_of_this_machine(text)


@pytest.mark.parametrize("text", ["ext::sh -c true", "git+ext::sh", "~root/x", "$HOME/x", "\\\\server\\share"])
def test_what_is_no_reference_leads_nowhere(text: str) -> None:
    with pytest.raises(RefResolutionError):
        parse_reference(text)


@pytest.mark.parametrize(
    "text", ["git+https://example.org/org/repo@v1", "https://example.org/x.md", "./x", "foundation"]
)
def test_other_references_lead_elsewhere(text: str) -> None:
    assert not is_of_this_machine(text)


@pytest.mark.parametrize(
    "extra",
    [
        "includes: ['git+file:///srv/b']",
        "tools: [{module: tool-x, source: 'git+file:///srv/x'}]",
        "agents: {a: {tools: [{module: tool-x, source: 'git+ssh://localhost/x'}]}}",
    ],
)
def test_a_bundle_from_elsewhere_names_no_repository_of_this_machine(tmp_path: Path, extra: str) -> None:
    file = tmp_path / "bundle.md"
    file.write_text(BUNDLE.format(extra=extra))
    bundle = read_bundle(file)

    check_remote_paths(bundle, tmp_path)
    with pytest.raises(RefResolutionError, match="bad-ref: local path in a remote profile"):
        check_remote_paths(bundle, tmp_path, from_elsewhere=True)
