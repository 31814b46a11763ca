"""What is newer than the cache, and getting it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.modules import ModuleActivator
from amplifier_foundation.updates import BundleStatus, SourceStatus, check_bundle_status, update_bundle

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "origin" / "modules" / "tool-x"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "tool-x"\ndependencies = ["thing"]\n')
    git(tmp_path / "origin", "init", "-q")
    commit(tmp_path / "origin", "one")
    return tmp_path / "origin"


def git(repository: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=repository, check=True, capture_output=True)


def commit(repository: Path, text: str) -> None:
    (repository / "modules" / "tool-x" / "version").write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", text)


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command `uv` that installs nothing and notes its runs."""
    command = tmp_path / "bin" / "uv"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho run >> '{tmp_path}/runs'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    return tmp_path / "runs"


def runs(installer: Path) -> int:
    return installer.read_text().count("run") if installer.exists() else 0


def source(repository: Path) -> str:
    return f"git+{repository.as_uri()}@main#subdirectory=modules/tool-x"


async def test_a_moved_branch_is_an_update_and_the_fragment_is_kept(
    repository: Path, cache_dir: Path, installer: Path
) -> None:
    bundle = Bundle("b", tools=[{"module": "tool-x", "source": source(repository)}])
    activator = ModuleActivator(cache_dir)
    before = await activator.activate("tool-x", source(repository))
    assert (await check_bundle_status(bundle, cache_dir)).summary == "All 1 source(s) up to date"

    commit(repository, "two")
    status = await check_bundle_status(bundle, cache_dir)
    assert [update.source_uri for update in status.updateable_sources] == [source(repository)]
    assert status.has_updates
    assert status.summary.startswith("1")
    assert await update_bundle(bundle, cache_dir) is bundle

    after = await activator.activate("tool-x", source(repository))
    assert ((before / "version").read_text(), (after / "version").read_text()) == ("one", "two")
    assert not (await check_bundle_status(bundle, cache_dir)).has_updates
    assert runs(installer) == 2
    assert len(list((cache_dir / "env").iterdir())) == 2


async def test_only_chosen_sources_are_updated_and_dependencies_can_be_left(
    repository: Path, cache_dir: Path, installer: Path
) -> None:
    bundle = Bundle("b", tools=[{"module": "tool-x", "source": source(repository)}])

    await update_bundle(bundle, cache_dir, selective=["./local"], install_deps=False)
    assert not (cache_dir / "git").exists()
    await update_bundle(bundle, cache_dir, selective=[source(repository)], install_deps=False)
    assert (cache_dir / "git").exists()
    assert runs(installer) == 0


async def test_each_source_is_looked_at_once_and_local_ones_cannot_be_checked(tmp_path: Path, cache_dir: Path) -> None:
    bundle = Bundle(
        "",
        session={"orchestrator": {"module": "loop", "source": "/a"}, "context": "context-simple"},
        providers=[{"module": "p", "source": "/b"}],
        tools=[{"module": "t", "source": "/a"}],
        hooks=[{"module": "h"}],
        agents={"x": {"tools": [{"module": "y", "source": "/c"}]}},
    )
    bundle._source_uri = "/bundle"

    status = await check_bundle_status(bundle, cache_dir)

    assert (status.bundle_name, status.bundle_source) == ("unnamed", "/bundle")
    assert [entry.source_uri for entry in status.sources] == ["/bundle", "/a", "/b"]
    assert status.unknown_sources == status.sources
    assert status.summary.startswith("Up to date (")


@pytest.mark.parametrize(
    ("states", "start"),
    [([True, False, None], "1"), ([False, None], "Up to date ("), ([False, False], "All 2 source(s) up to date")],
)
def test_the_summary_says_what_there_is_to_do(states: list[Any], start: str) -> None:
    sources = [SourceStatus(f"s{index}", True, has_update=state) for index, state in enumerate(states)]
    status = BundleStatus("b", None, sources)

    assert status.summary.startswith(start)
    assert len(status.up_to_date_sources) == states.count(False)


async def test_a_source_that_is_no_reference_is_an_error_of_its_own(cache_dir: Path) -> None:
    bundle = Bundle("x", tools=[{"module": "a", "source": "git+https://host-without-repository"}])

    (status,) = (await check_bundle_status(bundle, cache_dir)).sources

    assert (status.has_update, status.is_cached) == (None, False)
    assert "no repository" in str(status.error)
    assert status.summary.startswith("Error")
