"""Names with an underscore that published applications use all the same."""

import subprocess
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

import amplifier_core
from amplifier_core import AmplifierSession
from amplifier_foundation import BundleRegistry, load_bundle, parse_uri
from amplifier_foundation.bundle import Origin, PreparedBundle
from amplifier_foundation.bundle._prepared import PreparedBundle as Annotated
from amplifier_foundation.configurator._inspector import walk_include_chains
from amplifier_foundation.configurator._types import Origin as OriginOfItems
from amplifier_foundation.exceptions import BundleNotFoundError
from amplifier_foundation.modules import ModuleActivator
from amplifier_foundation.modules.install_state import InstallStateManager
from amplifier_foundation.sources.git import GitSourceHandler
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


def test_the_kernel_says_that_it_has_no_native_engine() -> None:
    assert amplifier_core.RUST_AVAILABLE is False
    assert amplifier_core.RustSession is AmplifierSession
    with pytest.raises(AttributeError, match="needs a native engine"):
        amplifier_core.grpc_adapter  # noqa: B018 - reading it is the test


def test_aliases_are_the_same_classes(tmp_path: Path) -> None:
    assert (Annotated, OriginOfItems) == (PreparedBundle, Origin)
    state = ModuleActivator(cache_dir=tmp_path)._install_state
    assert isinstance(state, InstallStateManager)
    state.invalidate(None)
    state.save()


def test_ids_of_child_sessions_come_from_uuid4() -> None:
    with patch("uuid.uuid4", return_value=UUID(int=1 << 127)):
        assert generate_sub_session_id("a") == "0000000000000000-8000000000000000_a"


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
