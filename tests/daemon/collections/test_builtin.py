"""The collection that is shipped, and the one that the user makes: both are there without an entry."""

import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from amplifier_foundation.sources import hash_content
from amplifierd import Home, ProfileId, open_home
from amplifierd.exceptions import CollectionError


def test_the_shipped_collection_is_listed_without_an_entry(home: Home, shipped: Path) -> None:
    (foundation,) = home.collections.list()

    assert (foundation.identifier, foundation.source, foundation.commit) == ("foundation", "builtin:foundation", None)
    assert foundation.content_hash == hash_content(shipped)


def test_the_distribution_ships_a_collection(tmp_path: Path) -> None:
    home = open_home(tmp_path)

    assert home.shipped_collection is not None
    assert [collection.identifier for collection in home.collections.list()] == ["foundation"]


async def test_the_shipped_profiles_are_extracted_on_demand_and_by_sync(
    home: Home, new_home: Callable[..., Home]
) -> None:
    await home.catalogue.ensure_profile("foundation/core")

    assert home.collections.profile_ids() == (ProfileId("foundation", "core"),)
    assert home.paths.profile_file("foundation/core").is_file()
    result = (await new_home().collections.sync())["foundation"]
    assert (result.status, result.commit_after, dict(result.profiles)) == ("unchanged", None, {"core": "unchanged"})


async def test_missing_collections_are_extracted_once(home: Home, snapshot: Callable[[], object]) -> None:
    first = await home.collections.extract_missing()
    before = snapshot()

    second = await home.collections.extract_missing()

    assert ({key: result.status for key, result in first.items()}, second) == ({"foundation": "synced"}, {})
    assert snapshot() == before


async def test_an_upgrade_of_the_distribution_is_noticed_without_a_sync(
    home: Home, shipped: Path, new_home: Callable[..., Home], text: Callable[..., str]
) -> None:
    await home.catalogue.ensure_profile("foundation/core")
    (shipped / "profiles" / "core.md").write_text(text("core", body="Newer."))
    (shipped / "profiles" / "more.md").write_text(text("more"))

    upgraded = new_home()
    await upgraded.catalogue.ensure_profile("foundation/core")

    assert "Newer." in upgraded.paths.profile_file("foundation/core").read_text()
    assert upgraded.collections.has_profile("foundation/more")


async def test_it_cannot_be_removed_or_changed_without_an_entry(home: Home, shipped: Path) -> None:
    for call in (
        home.collections.remove("foundation", force=True),
        home.collections.update("foundation", str(shipped)),
    ):
        with pytest.raises(CollectionError) as refused:
            await call
        assert refused.value.code == "builtin-collection"


async def test_an_entry_of_its_name_replaces_it_until_the_entry_is_removed(
    home: Home, tmp_path: Path, text: Callable[..., str]
) -> None:
    await home.collections.sync()
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.md").write_text(text())

    await home.collections.add("foundation", str(own))

    assert home.collections.profile_ids() == (ProfileId("foundation", "mine"),)
    assert not home.paths.profile_dir("foundation/core").exists()
    await home.collections.remove("foundation")
    await home.catalogue.ensure_profile("foundation/core")
    assert home.collections.profile_ids() == (ProfileId("foundation", "core"),)


async def test_a_home_whose_shipped_collection_is_gone_still_works(
    home: Home, shipped: Path, new_home: Callable[..., Home]
) -> None:
    await home.collections.sync()
    shutil.rmtree(shipped)

    result = (await home.collections.sync())["foundation"]

    assert result.status == "error"
    assert "does not exist" in result.errors[0].message
    later = new_home()
    await later.catalogue.ensure_profile("foundation/core")
    assert later.collections.has_profile("foundation/core")
    assert [(each.identifier, each.status) for each in later.collections.list()] == [("foundation", "error")]


async def test_a_home_can_be_moved(home: Home, shipped: Path, repository: Any, tmp_path: Path) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    home.paths.home.rename(tmp_path / "elsewhere")

    moved = open_home(
        tmp_path / "elsewhere", shipped_collection=shipped, overrides={"startup": {"auto_compile": False}}
    )

    assert moved.collections.profile_ids() == (ProfileId("team", "base"),)
    assert (await moved.catalogue.root("team")).path.is_relative_to(tmp_path / "elsewhere")
    assert (await moved.collections.sync(["team"]))["team"].status == "unchanged"


async def test_the_users_own_profiles_are_a_collection_when_there_are_any(home: Home, text: Callable[..., str]) -> None:
    assert "local" not in {collection.identifier for collection in home.collections.list()}
    assert home.collections.get("local").profiles == ()

    own = home.paths.own_profiles
    (own / "mine").mkdir(parents=True)
    (own / "mine" / "profile.md").write_text(text("mine"))
    (own / "short.md").write_text(text())

    local = home.collections.list()[-1]
    assert (local.identifier, local.source, local.profile_count) == ("local", "config/profiles", 2)
    assert [(each.name, each.version, each.path) for each in local.profiles] == [
        ("mine", "1.0.0", "mine/profile.md"),
        ("short", "1.0.0", "short.md"),
    ]
    assert home.collections.has_profile("local/mine")
    assert home.catalogue.find_owners("mine") == (ProfileId("local", "mine"),)
    assert home.catalogue.reference_base("local/mine").directory == PurePosixPath("mine")
    root = await home.catalogue.root("local")
    assert root.path == root.boundary == own
    assert (await home.collections.sync(["local"]))["local"].status == "unchanged"
    (own / "mine" / "profile.md").write_text(text("mine", body="Other words."))
    assert home.paths.profile_file("local/mine").read_text() == text("mine")
    assert home.profiles.get("local/mine").path == own / "mine" / "profile.md"
    assert home.paths.profile_file("local/mine").read_text() == text("mine", body="Other words.")

    shutil.rmtree(own)
    assert "local" not in {collection.identifier for collection in home.collections.list()}
    assert not home.paths.profile_dir("local/mine").exists()


def test_a_directory_where_a_profile_should_be_is_no_profile(home: Home) -> None:
    (home.paths.own_profiles / "odd" / "profile.md").mkdir(parents=True)

    assert "local" not in [collection.identifier for collection in home.collections.list()]
    assert home.profiles.list() == ()
