"""`collections.yaml`: what people write in it holds, and what we write in it leaves theirs alone."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd import Home
from amplifierd.exceptions import CollectionError


def make_source(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True)
    (directory / "base.md").write_text(text)
    return directory


def identifiers(home: Home) -> list[str]:
    return [collection.identifier for collection in home.collections.list()]


@pytest.mark.parametrize("content", [None, "", "# nothing yet\n", "collections:\n", "collections: {}\n", "other: 1\n"])
def test_a_home_without_entries_has_only_the_shipped_collection(
    home: Home, register: Callable[[str], None], content: str | None
) -> None:
    if content is not None:
        register(content)

    assert identifiers(home) == ["foundation"]
    assert home.collections.warnings() == ()
    assert home.paths.collections_file.exists() is (content is not None)


def test_entries_keep_their_order_and_a_bare_string_is_a_source(home: Home, register: Callable[[str], None]) -> None:
    register("collections:\n  zebra: ../z\n  team:\n    source: ../t\n    enabled: false\n    auto_sync: false\n")

    zebra, team = home.collections.list()[1:]

    assert (zebra.identifier, zebra.source, zebra.enabled, zebra.auto_sync) == ("zebra", "../z", True, True)
    assert (team.source, team.enabled, team.auto_sync, team.status) == ("../t", False, False, "disabled")


def test_an_edit_by_hand_is_seen_at_the_next_call(home: Home, register: Callable[[str], None]) -> None:
    register("collections:\n  one: ../one\n")
    assert identifiers(home) == ["foundation", "one"]

    register("collections:\n  two: ../two\n")

    assert identifiers(home) == ["foundation", "two"]


def test_a_timestamp_written_by_hand_is_shown_as_text(home: Home, register: Callable[[str], None]) -> None:
    register("collections:\n  team:\n    source: ../t\n    installed_at: 2025-11-28T10:30:00Z\n")

    assert home.collections.get("team").installed_at == "2025-11-28T10:30:00Z"


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("../x: ../t", "invalid-identifier"),
        ("Team: ../t", "invalid-identifier"),
        ("7: ../t", "invalid-identifier"),
        ("local: ../t", "reserved-collection"),
        ("bad: [1]", "wrong-type"),
        ("bad: {enabled: true}", "source-missing"),
        ("bad: {source: 3}", "wrong-type"),
        ("bad: {source: ../t, enabled: perhaps}", "wrong-type"),
    ],
)
def test_an_invalid_entry_is_reported_and_the_others_work(
    home: Home, register: Callable[[str], None], entry: str, code: str
) -> None:
    register(f"collections:\n  {entry}\n  good: ../good\n")

    assert identifiers(home) == ["foundation", "good"]
    (issue,) = home.collections.warnings()
    assert (issue.code, issue.severity, issue.file) == (code, "error", home.paths.collections_file)


def test_an_unknown_key_is_a_warning_of_its_collection_and_survives_a_change(
    home: Home, register: Callable[[str], None]
) -> None:
    register("collections:\n  team:\n    source: ../t\n    owner: ada\n")

    (issue,) = home.collections.get("team").warnings

    assert (issue.code, issue.severity, issue.location) == ("unknown-key", "warning", "collections.team.owner")


async def test_changes_keep_comments_order_quotes_and_foreign_keys(
    home: Home, register: Callable[[str], None], tmp_path: Path, text: Callable[..., str]
) -> None:
    make_source(tmp_path / "source", text("base"))
    register(
        "# Our collections\n"
        "note: 'keep me'\n"
        "collections:\n"
        "  # the good one\n"
        "  team:  # inline\n"
        f'    source: "{tmp_path / "source"}"\n'
        "    owner: ada  # who to ask\n"
        "  bare: ../bare\n"
    )

    await home.collections.add("new", str(tmp_path / "source"))
    await home.collections.update("team", enabled=False)
    await home.collections.update("bare", auto_sync=False)

    written = home.paths.collections_file.read_text()
    lines = written.splitlines()
    assert lines[:8] == [
        "# Our collections",
        "note: 'keep me'",
        "collections:",
        "  # the good one",
        "  team:  # inline",
        f'    source: "{tmp_path / "source"}"',
        "    owner: ada  # who to ask",
        "    enabled: false",
    ]
    assert identifiers(home) == ["foundation", "team", "bare", "new"]
    assert (home.collections.get("bare").source, home.collections.get("bare").auto_sync) == ("../bare", False)
    installed_at = home.collections.get("new").installed_at
    assert installed_at is not None
    assert installed_at.endswith("Z")


async def test_comments_of_a_file_that_holds_nothing_else_survive_the_first_entry(
    home: Home, register: Callable[[str], None], tmp_path: Path, text: Callable[..., str]
) -> None:
    make_source(tmp_path / "source", text("base"))
    register("# a heading\n# and more")

    await home.collections.add("team", str(tmp_path / "source"))

    assert home.paths.collections_file.read_text().startswith("# a heading\n# and more\ncollections:\n  team:\n")


BROKEN = "collections:\n  team: {source: ../t\n  other: ../o\n"


async def test_a_malformed_file_keeps_the_last_good_registry_and_is_never_written(
    home: Home, register: Callable[[str], None], tmp_path: Path, text: Callable[..., str], caplog: Any
) -> None:
    source = make_source(tmp_path / "source", text("base"))
    await home.collections.add("team", str(source))
    register(BROKEN)

    with caplog.at_level(logging.WARNING):
        assert identifiers(home) == ["foundation", "team"]

    (issue,) = home.collections.warnings()
    assert (issue.code, issue.line) == ("collections-file-invalid", 3)
    assert "line 3, column" in issue.message
    assert "line 3, column" in caplog.text
    for attempt in (
        home.collections.add("more", str(source)),
        home.collections.update("team", enabled=False),
        home.collections.remove("team"),
    ):
        with pytest.raises(CollectionError) as refused:
            await attempt
        assert refused.value.code == "collections-file-invalid"
    assert home.paths.collections_file.read_text() == BROKEN
    results = await home.collections.sync()
    assert {key: result.status for key, result in results.items()} == {"foundation": "synced", "team": "unchanged"}
    assert home.paths.profile_file("team/base").exists()

    register(f"collections:\n  team: {source}\n")
    assert home.collections.warnings() == ()


@pytest.mark.parametrize(
    "content", ["- team\n", "collections: [team]\n", "just text\n", "collections:\n  a: &x [*x]\n"]
)
async def test_a_file_of_another_shape_counts_as_malformed(
    home: Home, register: Callable[[str], None], content: str
) -> None:
    register(content)

    assert [issue.code for issue in home.collections.warnings()] == ["collections-file-invalid"]
    with pytest.raises(CollectionError):
        await home.collections.remove("team")
    assert home.paths.collections_file.read_text() == content


async def test_an_entry_written_twice_is_not_changed_by_us(home: Home, register: Callable[[str], None]) -> None:
    content = "collections:\n  team: ../one\n  team: ../two\n"
    register(content)

    with pytest.raises(CollectionError) as refused:
        await home.collections.update("team", enabled=False)

    assert refused.value.code == "collections-file-invalid"
    assert home.paths.collections_file.read_text() == content


@pytest.mark.parametrize("collection_id", ["on", "off", "123", "1.5", "null", "true"])
async def test_an_id_that_yaml_would_take_for_something_else_stays_a_text(
    home: Home, repository: Any, collection_id: str
) -> None:
    await home.collections.add(collection_id, f"{repository.source}@main")

    assert collection_id in identifiers(home)
    assert home.collections.warnings() == ()
    await home.collections.remove(collection_id)
    assert collection_id not in identifiers(home)


def test_what_is_wrong_with_an_entry_has_its_line_and_a_way_out(home: Home, register: Callable[[str], None]) -> None:
    register("collections:\n  one: {sourc: x}\n  two:\n    source: ../x\n    enabled: 3\n  No: y\n  local: x\n")

    found = home.collections.warnings()

    assert [(issue.code, issue.line) for issue in found] == [
        ("source-missing", 2),
        ("unknown-key", 2),
        ("wrong-type", 5),
        ("invalid-identifier", 1),
        ("reserved-collection", 7),
    ]
    assert all(issue.fix for issue in found)
