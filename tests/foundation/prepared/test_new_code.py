"""After an update the next session of a bundle has the new code, in the same process."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, use_plain_git

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.modules import ModuleActivationError
from amplifier_foundation.registry import BundleRegistry
from amplifier_foundation.updates import update_bundle

MakeBundle = Callable[..., Bundle]

TOOL = """
from amplifier_core import ToolResult
from .version import VERSION

class Tool:
    name, description = "versioned", "Says which code it is."

    async def execute(self, input):
        return ToolResult(output=VERSION)

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool())
"""


def files(version: str) -> dict[str, str]:
    package = "amplifier_module_tool_versioned"
    project = '[project]\nname = "amplifier-module-tool-versioned"\nversion = "1"\ndependencies = []\n'
    return {
        "pyproject.toml": project,
        f"{package}/__init__.py": TOOL,
        f"{package}/version.py": f"VERSION = {version!r}\n",
    }


@pytest.fixture(autouse=True)
def same_modules() -> Iterator[None]:
    """Leave the process with the very modules it had: other tests hold parts of them."""
    before = {name: module for name, module in sys.modules.items() if name.startswith("amplifier_module_")}
    yield
    for name in [name for name in sys.modules if name.startswith("amplifier_module_")]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "remote" / "tool.git")
    repository.commit(files("one"))
    return repository


@pytest.fixture
def bundle(make_bundle: MakeBundle, repository: Repository) -> Bundle:
    return make_bundle(tools=[{"module": "tool-versioned", "source": f"git+{repository.path.as_uri()}@main"}])


async def answer_of(session: Any) -> Any:
    assert session.status.load_failures == []
    return (await session.coordinator.get("tools")["versioned"].execute({})).output


async def test_the_next_session_after_an_update_has_the_new_code(
    bundle: Bundle, repository: Repository, cache_dir: Path
) -> None:
    async with (await bundle.prepare(cache_dir=cache_dir)).create_session() as session:
        assert await answer_of(session) == "one"
    repository.commit(files("two"))

    await update_bundle(bundle, cache_dir)

    async with (await bundle.prepare(cache_dir=cache_dir)).create_session() as session:
        assert await answer_of(session) == "two"


async def test_preparing_offline_fetches_nothing(make_bundle: MakeBundle, cache_dir: Path) -> None:
    far = make_bundle(tools=[{"module": "tool-far", "source": "git+https://host.invalid/tool@v1"}])

    with pytest.raises(ModuleActivationError, match="offline"):
        await far.prepare(cache_dir=cache_dir, strict=True, offline=True)


BUNDLE = """---
bundle: {name: own}
session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}
providers: [{module: provider-mock}]
tools: [{module: tool-versioned, source: ./tool-versioned}]
context: {include: [rules.md]}
---
"""


async def test_the_modules_and_files_beside_a_bundle_move_with_it(repository: Repository, tmp_path: Path) -> None:
    def bundle_files(version: str) -> dict[str, str]:
        own = {f"tool-versioned/{name}": text for name, text in files(version).items()}
        return {**own, "bundle.md": BUNDLE, "rules.md": f"Rules {version}."}

    repository.commit(bundle_files("one"))
    cache_dir = tmp_path / "home/cache"
    bundle = await BundleRegistry(tmp_path / "home").load(f"git+{repository.path.as_uri()}@main")
    async with (await bundle.prepare(cache_dir=cache_dir)).create_session() as session:
        assert await answer_of(session) == "one"
    repository.commit(bundle_files("two"))

    await update_bundle(bundle, cache_dir)

    async with (await bundle.prepare(cache_dir=cache_dir)).create_session() as session:
        assert await answer_of(session) == "two"
    assert [path.read_text() for path in bundle.context.values()] == ["Rules two."]


async def test_while_an_older_session_lives_the_refusal_names_it(
    bundle: Bundle, repository: Repository, cache_dir: Path
) -> None:
    prepared = await bundle.prepare(cache_dir=cache_dir)
    async with prepared.create_session(session_id="the-old-one") as old:
        repository.commit(files("two"))
        await update_bundle(bundle, cache_dir)

        async with (await bundle.prepare(cache_dir=cache_dir)).create_session() as new:
            (failure,) = new.status.load_failures
            assert "session 'the-old-one' still uses that code" in failure["error"]
        assert await answer_of(old) == "one"


async def test_an_embedded_loop_makes_way_for_one_with_a_source_and_comes_back(
    make_bundle: MakeBundle, cache_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "loop" / "amplifier_module_loop_basic"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "class Loop:\n"
        "    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):\n"
        "        return 'a loop of our own'\n\n"
        "async def mount(coordinator, config=None):\n"
        "    await coordinator.mount('orchestrator', Loop())\n"
    )
    embedded = make_bundle()
    own = make_bundle(
        session={
            "orchestrator": {"module": "loop-basic", "source": folder.parent.as_uri()},
            "context": "context-simple",
        }
    )

    for bundle, is_own in ((embedded, False), (own, True), (embedded, False)):
        async with (await bundle.prepare(cache_dir=cache_dir)).create_session() as session:
            assert (await session.execute("hello") == "a loop of our own") is is_own
