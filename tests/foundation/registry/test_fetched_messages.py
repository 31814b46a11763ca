"""What is wrong with a bundle that was fetched is told by its reference: nobody knows the folders of the cache."""

import logging
from pathlib import Path

import pytest
from git_repository import Repository, use_plain_git

from amplifier_foundation import BundleError, BundleRegistry

PLAN = """---
bundle: {name: x}
session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}
providers: [{module: provider-mock}]
tools: [{module: tool-x, source: "SOURCE#subdirectory=tool-x"}]
---
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    use_plain_git(monkeypatch)
    return Repository(tmp_path / "remote")


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("bundle: {name: x", "bundle.md of SOURCE is not valid YAML"),
        ("- a list", "bundle.md of SOURCE: the root must be a mapping"),
        ("bundle: {name: x}\ntools: 7", "bundle.md of SOURCE"),
        ("bundle: {name: x}\ntolls: []", "bundle.md of SOURCE: section 'tolls' has no effect"),
        ("tools: []", "bundle.md of SOURCE has no section 'bundle:'"),
        ("bundle: {name: x}\ncontext: {include: [gone.md]}", "bundle 'x': context file 'gone.md' does not exist"),
        ("bundle: {name: x}\ncontext: {include: ['x:gone.md']}", "bundle 'x': context file 'x:gone.md' does not exist"),
        ("bundle: {name: x}\nagents: {include: [gone]}", "bundle 'x': agent 'gone' has no file agents/gone.md"),
        ("bundle: {name: x}\nincludes: [./gone.md]", "SOURCE includes './gone.md': SOURCE has no file './gone.md'"),
        ("bundle: {name: x}", "bundle 'x': mention '@x:gone.md' leads to nothing in bundle 'x'"),
    ],
)
async def test_a_fetched_bundle_is_named_by_its_reference(
    repository: Repository, home: Path, caplog: pytest.LogCaptureFixture, header: str, told: str
) -> None:
    repository.commit({"bundle.md": f"---\n{header}\n---\nSee @x:gone.md now.\n"})
    said = ""

    with caplog.at_level(logging.WARNING):
        try:
            await BundleRegistry(home).load(f"{repository.source}@main")
        except BundleError as error:
            said = str(error)

    said += "\n".join(caplog.messages)
    assert told.replace("SOURCE", f"{repository.source}@main") in said
    assert str(home) not in said


async def test_an_error_in_a_fetched_module_names_its_reference(repository: Repository, home: Path) -> None:
    source = f"{repository.source}@main"
    package = "tool-x/amplifier_module_tool_x/__init__.py"
    repository.commit({"bundle.md": PLAN.replace("SOURCE", source), package: "import nowhere_to_be_found\n"})
    bundle = await BundleRegistry(home).load(source)

    async with (await bundle.prepare(cache_dir=home / "cache")).create_session() as session:
        (failure,) = session.status.load_failures

    named = f"amplifier_module_tool_x/__init__.py of {source}#subdirectory=tool-x"
    assert f"install 'nowhere_to_be_found', which {named} imports" in failure["error"]
    assert str(home) not in failure["error"]
