"""A build that was found fresh is known by the status of files from then on, and whatever is touched is noticed."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ID = "local/mine"
TICK_S = 0.15  # after which a file that was just written counts as settled


@pytest.fixture
def site(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of installed packages, with one module and an empty directory in it."""
    site = tmp_path / "site"
    bench.write_files(site, {"amplifier_module_tool_extra/__init__.py": "x = 1\n"})
    (site / "amplifier_module_tool_extra/empty").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    return site


async def seen(bench: Any, activity: Any) -> Any:
    """Compile a profile until its build is known without reading anything."""
    folder = bench.write_profile("parent").parent.parent
    bench.write_profile(extends="parent", tools=[{"module": "tool-extra"}], context={"docs": "./docs"})
    bench.write_files(folder / "mine/docs", {"a.md": "A\n"})
    build = await bench.home.profiles.compile(ID)
    await asyncio.sleep(TICK_S)
    await bench.home.profiles.compile(ID)
    with activity.watching():
        assert await bench.home.profiles.compile(ID) == build
    assert (activity.opened, activity.written, activity.started) == ([], [], [])
    return build


CHANGES: dict[str, Callable[[Any, Path], object]] = {
    "text": lambda bench, site: bench.write_profile(extends="parent", tools=[{"module": "tool-todo"}]),
    "parent": lambda bench, site: bench.write_profile("parent", body="Other words."),
    "module": lambda bench, site: (site / "amplifier_module_tool_extra/__init__.py").write_text("x = 2\n"),
    "new file": lambda bench, site: (site / "amplifier_module_tool_extra/empty/more.py").write_text("y = 1\n"),
    "context": lambda bench, site: (bench.home.paths.own_profiles / "mine/docs/a.md").write_text("B\n"),
    "new context": lambda bench, site: (bench.home.paths.own_profiles / "mine/docs/b.md").write_text("B\n"),
    "overlay": lambda bench, site: bench.write_files(
        bench.home.paths.overlay_file(ID).parent, {"mine.md": "---\ntools: [{module: tool-todo}]\n---\n"}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_is_changed_makes_another_build(bench: Any, site: Path, activity: Any, change: str) -> None:
    first = await seen(bench, activity)

    CHANGES[change](bench, site)

    assert (await bench.home.profiles.compile(ID)).build_id != first.build_id


@pytest.mark.parametrize("lost", ["plan.json", "contexts/docs/a.md"])
async def test_what_is_lost_or_damaged_in_a_build_comes_back(bench: Any, site: Path, activity: Any, lost: str) -> None:
    first = await seen(bench, activity)
    file = first.path / lost
    content = file.read_bytes()

    file.chmod(0o600)
    file.parent.chmod(0o700)
    if lost.startswith("contexts"):
        file.write_bytes(b"damaged")
        assert (await bench.home.profiles.verify(ID)).codes == ("resource-modified",)
    else:
        file.unlink()

    build = await bench.home.profiles.compile(ID)
    assert (build.path / lost).read_bytes() == content


async def test_a_lost_lock_comes_back(bench: Any, site: Path, activity: Any) -> None:
    first = await seen(bench, activity)
    first.path.chmod(0o700)
    (first.path / "profile.lock").unlink()

    build = await bench.home.profiles.compile(ID)

    assert (build.path / "profile.lock").is_file()


async def test_a_source_that_comes_back_is_noticed(bench: Any, site: Path, activity: Any) -> None:
    first = await seen(bench, activity)
    docs = bench.home.paths.own_profiles / "mine/docs"
    docs.rename(docs.with_name("gone"))
    await asyncio.sleep(TICK_S)
    assert await bench.home.profiles.compile(ID) == first
    assert await bench.home.profiles.compile(ID) == first

    bench.write_files(docs, {"a.md": "Another\n"})

    assert (await bench.home.profiles.compile(ID)).build_id != first.build_id
