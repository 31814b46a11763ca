"""The folders of a bundle: its agents, its context files, itself."""

from pathlib import Path

import pytest

from amplifier_foundation.paths import construct_agent_path, construct_context_path, find_bundle_root, find_files


@pytest.mark.parametrize(("name", "expected"), [("helper", "agents/helper.md"), ("helper.md", "agents/helper.md")])
def test_an_agent_is_a_markdown_file_in_agents(name: str, expected: str) -> None:
    assert construct_agent_path(Path("/b"), name) == Path("/b") / expected


@pytest.mark.parametrize(
    ("name", "expected"), [("context/a.md", "/b/context/a.md"), ("//a", "/b/a"), ("/", "/b"), ("", "/b"), ("x", "/b/x")]
)
def test_a_context_file_is_where_its_name_says_below_the_bundle(name: str, expected: str) -> None:
    assert construct_context_path(Path("/b"), name) == Path(expected)


async def test_files_are_found_sorted_and_below_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.md", "a.md", "in/c.md"):
        (tmp_path / name).touch()

    assert await find_files(tmp_path, "*.md") == [tmp_path / "a.md", tmp_path / "b.md", tmp_path / "in" / "c.md"]
    assert await find_files(tmp_path, "*.md", recursive=False) == [tmp_path / "a.md", tmp_path / "b.md"]
    assert await find_files(tmp_path, "**/c.md") == [tmp_path / "in" / "c.md"]


@pytest.mark.parametrize("name", ["bundle.md", "bundle.yaml"])
async def test_the_nearest_bundle_above_is_found(tmp_path: Path, name: str) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "a" / name).touch()

    assert await find_bundle_root(deep) == (tmp_path / "a").resolve()
    assert await find_bundle_root(tmp_path / "a") == (tmp_path / "a").resolve()


async def test_without_a_bundle_above_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "bundle.yml").touch()

    assert await find_bundle_root(tmp_path) is None
