"""The examples by which bundles are explained, word for word, with repositories of this machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_core import AmplifierSession
from amplifier_foundation import (
    Bundle,
    BundleRegistry,
    get_working_dir,
    load_bundle,
    set_working_dir,
)

Repository = Callable[..., str]

RUNNABLE = (
    "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}\n"
    "providers:\n  - {module: provider-mock, config: {mode: echo}}\n"
)
FOUNDATION = {
    "bundle.md": f"---\nbundle: {{name: foundation, version: 1.0.0}}\n{RUNNABLE}---\n"
    "See @foundation:context/guidelines.md for guidelines.\n",
    "context/guidelines.md": "Be brief.",
    "docs/GUIDE.md": "The guide.",
    "bundles/with-anthropic.yaml": "bundle: {name: with-anthropic, version: 1.0.0}\n"
    "includes:\n  - bundle: foundation\n  - bundle: foundation:providers/anthropic-opus\n",
    "providers/anthropic-opus.yaml": "bundle: {name: anthropic-opus, version: 1.0.0}\n"
    "providers:\n  - {module: provider-anthropic, config: {default_model: opus}}\n",
    "agents/my-agent.md": "---\nmeta: {name: my-agent, description: Knows one thing}\n---\nYou know one thing.\n",
}


@pytest.fixture
def registry(home: Path, repository: Repository) -> BundleRegistry:
    """A registry that knows the repository `foundation` by its name."""
    registry = BundleRegistry(home)
    registry.register({"foundation": repository("foundation", FOUNDATION)})
    return registry


async def test_a_bundle_becomes_a_mount_plan_becomes_a_session(home: Path, repository: Repository) -> None:
    bundle = await load_bundle(repository("foundation", FOUNDATION))

    mount_plan = bundle.to_mount_plan()

    assert set(mount_plan) == {"session", "providers"}  # no includes, no context, no instruction
    async with AmplifierSession(mount_plan) as session:
        assert "Hello!" in await session.execute("Hello!")


def test_the_merge_rules() -> None:
    base = Bundle(
        "base",
        session={"orchestrator": {"module": "loop-basic", "config": {"a": 1, "b": 1}}},
        providers=[{"module": "provider-mock", "config": {"mode": "echo"}}],
        tools=[{"module": "tool-bash", "config": {"timeout": 1, "cwd": "."}}],
        hooks=[{"module": "hooks-logging"}],
        spawn={"exclude_tools": ["tool-task"], "depth": 1},
        instruction="First.",
    )
    overlay = Bundle(
        "overlay",
        session={"orchestrator": {"config": {"b": 2}}},
        providers=[{"module": "provider-mock", "config": {"mode": "script"}}],
        tools=[{"module": "tool-bash", "config": {"timeout": 2}}, {"module": "tool-web"}],
        hooks=[{"module": "hooks-logging", "config": {"level": "debug"}}],
        spawn={"depth": 2},
        instruction="Second.",
    )

    result = base.compose(overlay)  # Later overrides earlier

    assert result.session == {"orchestrator": {"module": "loop-basic", "config": {"a": 1, "b": 2}}}
    assert result.providers == [{"module": "provider-mock", "config": {"mode": "script"}}]
    assert result.tools == [
        {"module": "tool-bash", "config": {"timeout": 2, "cwd": "."}},
        {"module": "tool-web"},
    ]
    assert result.hooks == [{"module": "hooks-logging", "config": {"level": "debug"}}]
    assert result.spawn == {"exclude_tools": ["tool-task"], "depth": 2}
    assert result.instruction == "Second."


async def test_a_prepared_bundle_answers_and_knows_the_files_its_instruction_mentions(
    tmp_path: Path, registry: BundleRegistry
) -> None:
    path = tmp_path / "bundle.md"
    path.write_text("---\nbundle: {name: mine}\nincludes: [foundation]\n---\nSee @foundation:context/guidelines.md.\n")

    bundle = await load_bundle(str(path), registry=registry)
    prepared = await bundle.prepare()
    async with prepared.create_session() as session:
        response = await session.execute("Hello!")
        messages = await session.coordinator.get("context").get_messages_for_request()

    assert "Hello!" in response
    assert messages[0]["role"] == "system"
    assert "Be brief." in messages[0]["content"]


async def test_the_namespace_of_a_root_bundle_is_its_name(home: Path, repository: Repository) -> None:
    registry = BundleRegistry(home)
    bundle = await load_bundle(repository("some-other-name", FOUNDATION), registry=registry)

    composed = bundle.compose(Bundle("mine"))

    state = registry.get_state("foundation")
    assert state is not None
    assert state.is_root
    guide = composed.source_base_paths["foundation"] / "docs/GUIDE.md"
    assert guide.read_text() == "The guide."


async def test_a_nested_bundle_includes_its_root_and_shares_its_namespace(registry: BundleRegistry) -> None:
    await load_bundle("foundation", registry=registry)
    source = registry.find("foundation")

    bundle = await load_bundle(f"{source}#subdirectory=bundles/with-anthropic.yaml", registry=registry)

    assert [entry["module"] for entry in bundle.providers] == ["provider-mock", "provider-anthropic"]
    root, nested = registry.get_state("foundation"), registry.get_state("with-anthropic")
    assert root is not None
    assert nested is not None
    assert (root.is_root, nested.is_root, nested.root_name) == (True, False, "foundation")
    assert (bundle.source_base_paths["foundation"] / "context/guidelines.md").is_file()


async def test_a_part_of_a_registered_bundle_can_be_included_by_its_namespace(
    tmp_path: Path, registry: BundleRegistry
) -> None:
    path = tmp_path / "bundle.yaml"
    path.write_text("bundle: {name: mine}\nincludes:\n  - bundle: foundation:bundles/with-anthropic\n")

    bundle = await load_bundle(path, registry=registry)

    assert [entry["module"] for entry in bundle.providers] == ["provider-mock", "provider-anthropic"]


async def test_bundles_and_agents_are_loaded_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name, text in FOUNDATION.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)

    bundle = await load_bundle("./bundle.md")
    agent = await load_bundle("./agents/my-agent.md")
    by_path = await load_bundle(Path("bundle.md"))  # a Path is never the name of a bundle

    assert by_path.instruction == bundle.instruction
    assert (bundle.name, bundle.version) == ("foundation", "1.0.0")
    assert (agent.name, agent.description, agent.instruction) == (
        "my-agent",
        "Knows one thing",
        "You know one thing.",
    )


async def test_a_session_knows_its_working_directory_and_its_bundles_packages(
    tmp_path: Path, home: Path, repository: Repository
) -> None:
    files = {**FOUNDATION, "pyproject.toml": '[project]\nname = "with-package"\n', "src/with_package.py": "X = 1\n"}
    bundle = await load_bundle(repository("with-package", files))
    prepared = await bundle.prepare(strict=True)

    async with prepared.create_session(session_cwd=tmp_path) as session:
        coordinator = session.coordinator
        assert coordinator.get_capability("session.working_dir") == str(tmp_path)
        assert get_working_dir(coordinator) == tmp_path
        set_working_dir(coordinator, tmp_path / "below")
        assert get_working_dir(coordinator) == tmp_path / "below"
        (package_path,) = coordinator.get_capability("bundle_package_paths")

    assert (Path(package_path) / "with_package.py").is_file()


async def test_without_the_capability_the_working_directory_is_the_processes() -> None:
    plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}

    async with AmplifierSession(plan) as session:
        assert get_working_dir(session.coordinator) == Path.cwd()
