"""Names with an underscore that published applications use all the same."""

import importlib
import inspect
import operator
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from amplifier_module_provider_openai import OpenAIProvider

import amplifier_core
from amplifier_core import AmplifierSession, MockTool
from amplifier_core.validation import ToolValidator
from amplifier_core.validation.base import ValidationResult
from amplifier_foundation import BundleRegistry, load_bundle, parse_uri
from amplifier_foundation.bundle import Origin, PreparedBundle
from amplifier_foundation.bundle._prepared import PreparedBundle as Annotated
from amplifier_foundation.configurator._inspector import walk_include_chains
from amplifier_foundation.configurator._types import Origin as OriginOfItems
from amplifier_foundation.exceptions import BundleNotFoundError
from amplifier_foundation.modules import ModuleActivator
from amplifier_foundation.modules.install_state import InstallStateManager
from amplifier_foundation.sources.git import GitSourceHandler
from amplifier_foundation.subprocess_runner import run_session_in_subprocess
from amplifier_foundation.tracing import generate_sub_session_id


def _write(file: Path, name: str, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nbundle: {{name: {name}, version: 1.0.0}}\n{text}---\nHello.\n")
    return file


def _committed(repository: Path) -> str:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"], ["rev-parse", "HEAD"]):
        run = subprocess.run([*git, *arguments], cwd=repository, check=True, capture_output=True, text=True)
    return run.stdout.strip()


NAMES = [  # what published applications and modules import or read, and what they expect to find there
    ("amplifier_core:RUST_AVAILABLE", bool),
    ("amplifier_core:RustSession", type),
    ("amplifier_core:RustCoordinator", type),
    ("amplifier_core:RustHookRegistry", type),
    ("amplifier_core:RustCancellationToken", type),
    ("amplifier_core.validation:ToolValidator._check_protocol_compliance", Callable),
    ("amplifier_foundation.subprocess_runner:run_session_in_subprocess", Callable),
    ("amplifier_foundation.sources.git:GitSourceHandler._get_cache_path", Callable),
    ("amplifier_foundation.sources.git:GitSourceHandler._get_local_commit", Callable),
    ("amplifier_foundation.sources.git:GitSourceHandler._get_remote_commit", Callable),
    ("amplifier_foundation:BundleRegistry._resolve_include_source", Callable),
    ("amplifier_foundation:BundleRegistry._registry", property),
    ("amplifier_foundation:Bundle.validate_modes", Callable),
    ("amplifier_foundation.configurator:SessionConfigurator.behaviors_list", Callable),
    ("amplifier_foundation.configurator._inspector:walk_include_chains", Callable),
    ("amplifier_foundation.configurator._types:Origin", type),
    ("amplifier_foundation.modules.install_state:InstallStateManager.invalidate", Callable),
    ("amplifier_foundation.modules.install_state:InstallStateManager.save", Callable),
    ("amplifier_foundation.modules:ModuleActivator._install_state", property),
    ("amplifier_foundation.bundle._prepared:PreparedBundle", type),
    ("amplifier_foundation.bundle:PreparedBundle.module_exports", property),
    ("amplifier_foundation.bundle_docs:bundle_repo_dot", Callable),
    ("amplifier_module_provider_openai:OpenAIProvider._convert_to_chat_response", Callable),
    ("amplifier_module_context_simple:SimpleContextManager._estimate_tokens", Callable),
]


@pytest.mark.parametrize(("name", "kind"), NAMES, ids=[name for name, _ in NAMES])
def test_names_are_where_published_code_looks_for_them(name: str, kind: type) -> None:
    module, _, path = name.partition(":")

    assert isinstance(operator.attrgetter(path)(importlib.import_module(module)), kind)


async def test_the_names_take_what_published_code_hands_them(tmp_path: Path) -> None:
    async def mount(coordinator: Any, config: dict[str, Any]) -> None:
        await coordinator.mount("tools", MockTool(config["name"]))

    result = ValidationResult("tool", "amplifier_module_tool_x")
    await ToolValidator()._check_protocol_compliance(result, mount, config={"name": "x"})

    assert result.passed
    assert {check.name for check in result.checks} >= {"protocol_compliance", "tool_execute"}
    assert OriginOfItems(bundle="a", via_behavior="b").via_behavior == "b"
    derived = OpenAIProvider(api_key="k", config={"default_model": "m"}, coordinator=None, client=None, add_cost=max)
    told = (derived._api_key, derived._add_cost, derived.default_model, derived.config["default_model"])
    assert told == ("k", max, "m", "m")
    given = inspect.signature(run_session_in_subprocess).parameters
    assert list(given) == [
        *("config", "prompt", "parent_id", "project_path", "session_id", "module_paths", "bundle_package_paths"),
        *("sys_paths", "mention_mappings", "timeout"),
    ]
    assert given["timeout"].default == 1800


def test_the_kernel_says_that_it_has_no_native_engine() -> None:
    assert amplifier_core.RUST_AVAILABLE is False
    assert amplifier_core.RustSession is AmplifierSession
    with pytest.raises(AttributeError, match="needs a native engine"):
        amplifier_core.grpc_adapter  # noqa: B018 - reading it is the test
    with pytest.raises(ImportError, match=r"not offered: .* native engine"):
        importlib.import_module("amplifier_foundation.grpc_adapter")


def test_an_application_can_show_a_version() -> None:
    release, _, ours = version("amplifier-core").partition("+amplifier.")

    assert (tuple(map(int, release.split("."))) >= (2, 0), ours) == (True, amplifier_core.__version__)
    assert version("amplifier-foundation") == version("amplifier-core")


def test_aliases_are_the_same_classes(tmp_path: Path) -> None:
    assert (Annotated, OriginOfItems) == (PreparedBundle, Origin)
    state = ModuleActivator(cache_dir=tmp_path)._install_state
    assert isinstance(state, InstallStateManager)
    state.invalidate(None)
    state.save()


@pytest.mark.parametrize("patched", ["uuid.uuid4", "amplifier_core.session.uuid.uuid4"])
def test_ids_of_sessions_come_from_uuid4(patched: str) -> None:
    plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}
    with patch(patched, return_value=UUID(int=1 << 127)):
        assert generate_sub_session_id("a") == "0000000000000000-8000000000000000_a"
        assert AmplifierSession(plan).session_id == "80000000-0000-0000-0000-000000000000"


async def test_a_prepared_bundle_knows_the_tools_of_its_modules_before_they_are_loaded(tmp_path: Path) -> None:
    package = tmp_path / "modules/tool-notes/amplifier_module_tool_notes"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text(
        "class Notes:\n    @property\n    def name(self):\n        return 'notes'\n"
        "    async def execute(self, input): ...\nasync def mount(coordinator, config):\n    raise OSError('no disk')\n"
    )
    tools = "tools: [{module: tool-notes, source: ./modules/tool-notes}, {module: tool-filesystem}, {module: tool-x}]\n"
    bundle = await load_bundle(str(_write(tmp_path / "bundle.md", "team", tools)))

    prepared = await bundle.prepare(cache_dir=tmp_path / "cache")

    assert prepared.module_exports == {
        "tool-notes": ["notes"],
        "tool-filesystem": ["edit_file", "read_file", "write_file"],
    }


async def test_modes_of_a_bundle_are_checked_without_running_anything(tmp_path: Path) -> None:
    modes = tmp_path / "modes"
    modes.mkdir()
    (modes / "plan.md").write_text("---\nmode: {tools: {safe: [read_file]}, default_action: block}\n---\nPlan.\n")
    (modes / "notes.md").write_text("Not a mode.\n")
    bundle = await load_bundle(str(_write(tmp_path / "bundle.md", "team")))
    assert bundle.validate_modes() == []

    (modes / "bad.md").write_text(
        "---\nmode: {name: Plan, default_action: maybe, tools: {safe: bash, warn: [a], block: [a], odd: []}}\n---\n"
    )
    (modes / "worse.md").write_text("---\nmode: [\n---\n")
    (modes / "word.md").write_text("---\nmode: plan\n---\n")

    faults = [fault.removeprefix(f"{modes}/") for fault in bundle.validate_modes()]
    assert faults == [
        "bad.md: mode.default_action must be one of block, allow, it is 'maybe'",
        "bad.md: mode.tools.safe must be a list of names of tools, it is a str",
        "bad.md: mode.tools lists 'a' as warn and as block",
        "bad.md: mode.tools.odd is not known; there are safe, warn, confirm, block",
        "plan.md: mode 'plan' is that of bad.md, too; a name means one mode",
        "word.md: mode must be a mapping, it is a str",
        faults[-1],
    ]
    assert faults[-1].startswith("worse.md is not valid YAML")


async def test_a_registered_bundle_lends_its_name_to_the_bundles_it_contains(tmp_path: Path) -> None:
    root = _write(tmp_path / "library/bundle.md", "library").parent
    _write(root / "bundles/small.md", "small")
    registry = BundleRegistry(home=tmp_path / "home")
    registry.register("library", str(root))

    bundle = await load_bundle("library:bundles/small", registry=registry)

    assert bundle.name == "small"
    assert (await registry.load("library:bundles/small")).name == "small"
    assert registry._resolve_include_source("library:bundles/small") == (root / "bundles/small.md").as_uri()
    assert registry._resolve_include_source("nobody:x") is None
    with pytest.raises(BundleNotFoundError, match="has no 'bundles/none'"):
        await load_bundle("library:bundles/none", registry=registry)


async def test_include_chains_are_walked_from_the_registry(tmp_path: Path) -> None:
    _write(tmp_path / "inner.md", "inner")
    outer = _write(tmp_path / "outer.md", "outer", "includes: [./inner.md]\n")
    registry = BundleRegistry(home=tmp_path / "home")
    await registry.load(str(outer))

    (chain,) = walk_include_chains("inner", dict(registry._registry), max_paths=3)

    assert [step.bundle for step in chain] == ["outer", "inner"]


async def test_an_application_finds_the_commits_of_a_git_source(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    _write(repository / "bundle.md", "fetched")
    commit = _committed(repository)
    handler, parsed = GitSourceHandler(), parse_uri(f"git+{repository.as_uri()}@main")
    cache = tmp_path / "cache"

    assert handler._get_local_commit(handler._get_cache_path(parsed, cache)) is None
    await handler.resolve(parsed, cache)

    assert handler._get_local_commit(handler._get_cache_path(parsed, cache)) == commit
    assert await handler._get_remote_commit(repository.as_uri(), "main") == commit
