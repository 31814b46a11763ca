"""Adding, listing, changing and removing collections."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd import Home, ProfileId
from amplifierd.exceptions import CollectionError, RefResolutionError


@pytest.fixture
def directory(tmp_path: Path, text: Callable[..., str]) -> Path:
    """A local source with two profiles, one of them broken, and what else a collection can hold."""
    root = tmp_path / "team-profiles"
    for name, content in {
        "profiles/base.md": text("base"),
        "profiles/broken.md": "---\nprofile: [\n---\n",
        "agents/explorer.md": "You explore.\n",
        "agents/.hidden.md": "No.\n",
        "context/shared/rules.md": "Rules.\n",
        "modules/tool-x/pyproject.toml": "[project]\nname = 'x'\n",
        "modules/not-a-module/readme.txt": "x",
        "scenario-tools/report/main.py": "",
        "pyproject.toml": (
            "[project]\nname = 'team'\nversion = '1.2'\ndescription = 'Ours'\nauthors = [{name = 'Ada'}]\n"
            "[tool.amplifier.collection]\ncapabilities = ['review']\nrequires = {foundation = '^1'}\n"
        ),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


async def test_adding_registers_extracts_and_reports_what_cannot_be_used(home: Home, directory: Path) -> None:
    result = await home.collections.add("team", str(directory))

    assert (result.success, result.collection_id, result.profile_count) == (True, "team", 1)
    assert result.message == "Collection 'team' added with 1 profile"
    assert result.warning is not None
    assert "Invalid YAML in profiles/broken.md" in result.warning
    assert home.paths.profile_file("team/base").read_text() == (directory / "profiles/base.md").read_text()
    assert not (home.paths.profiles / "team" / "broken").exists()


async def test_a_listed_collection_has_its_entry_its_state_its_profiles_and_its_issues(
    home: Home, repository: Any
) -> None:
    commit = repository.git("rev-parse", "HEAD")
    await home.collections.add("team", f"{repository.source}@main")

    team = home.collections.get("team")

    assert (team.source, team.commit, team.status, team.profile_count) == (
        f"{repository.source}@main",
        commit,
        "synced",
        1,
    )
    assert team.installed_at is not None
    assert team.synced_at is not None
    (profile,) = team.profiles
    assert (profile.name, profile.version, profile.path, profile.status) == (
        *("base", "1.0.0", "profiles/base.md", "missing"),
    )
    assert profile.installed_at == team.synced_at
    assert team.to_dict()["profiles"][0]["name"] == "base"


async def test_issues_of_files_are_kept_with_the_collection(home: Home, directory: Path, new_home: Any) -> None:
    await home.collections.add("team", str(directory))

    (issue,) = new_home().collections.get("team").warnings

    assert (issue.code, issue.file, issue.severity) == ("invalid-yaml", Path("profiles/broken.md"), "error")


async def test_the_inventory_lists_what_a_collection_holds_beside_profiles(home: Home, directory: Path) -> None:
    await home.collections.add("team", str(directory))

    inventory = await home.collections.inventory("team")

    assert inventory.agents == ("agents/explorer.md",)
    assert inventory.context == ("context/shared/rules.md",)
    assert inventory.modules == ("modules/tool-x",)
    assert inventory.scenario_tools == ("scenario-tools/report",)
    assert inventory.metadata == {
        **{"name": "team", "version": "1.2", "description": "Ours", "author": "Ada"},
        **{"capabilities": ["review"], "requires": {"foundation": "^1"}},
    }


async def test_a_project_file_one_package_below_describes_the_collection_too(home: Home, directory: Path) -> None:
    (directory / "pyproject.toml").unlink()
    package = directory / "team_collection"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pyproject.toml").write_text("[project]\nname = 'below'\n")
    await home.collections.add("team", str(directory))

    assert (await home.collections.inventory("team")).metadata == {"name": "below"}
    assert home.collections.get("team").identifier == "team"


async def test_a_broken_project_file_is_left_out(home: Home, directory: Path) -> None:
    (directory / "pyproject.toml").write_text("[project\n")
    await home.collections.add("team", str(directory))

    assert (await home.collections.inventory("team")).metadata == {}


async def test_an_existing_id_is_refused(home: Home, directory: Path) -> None:
    await home.collections.add("team", str(directory))

    with pytest.raises(CollectionError, match=r"^Collection already exists: team$"):
        await home.collections.add("team", str(directory))


@pytest.mark.parametrize(
    "source",
    ["/no/such/directory", "git+file:///no/such/repository@main", "no-such-package-anywhere", "builtin:foundation", ""],
)
async def test_a_source_that_cannot_be_had_registers_nothing(home: Home, source: str) -> None:
    with pytest.raises(RefResolutionError):
        await home.collections.add("team", source)

    assert not home.paths.collections_file.exists()
    assert not home.paths.collections_lock.exists()
    with pytest.raises(CollectionError, match=r"^Collection not found: team$"):
        home.collections.get("team")


async def test_a_source_must_be_a_directory(home: Home, directory: Path, repository: Any) -> None:
    for source in (str(directory / "pyproject.toml"), f"{repository.source}@main#README.md"):
        with pytest.raises(CollectionError) as refused:
            await home.collections.add("team", source)
        assert refused.value.code == "source-not-directory"
    assert not home.paths.collections_file.exists()


async def test_a_relative_source_counts_from_the_registry(home: Home, text: Callable[..., str]) -> None:
    root = home.paths.home / "team-profiles"
    root.mkdir(parents=True)
    (root / "base.md").write_text(text())

    await home.collections.add("team", "../team-profiles")

    assert home.collections.profile_ids()[-1] == "team/base"


async def test_a_changed_source_is_checked_at_once_and_takes_effect_at_the_next_sync(
    home: Home, directory: Path, repository: Any
) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    with pytest.raises(RefResolutionError):
        await home.collections.update("team", "/no/such/directory")
    assert home.collections.get("team").source == f"{repository.source}@main"

    changed = await home.collections.update("team", str(directory))

    assert changed.source == str(directory)
    assert (await home.catalogue.root("team")).commit is not None
    result = (await home.collections.sync(["team"]))["team"]
    assert (result.status, result.commit_after) == ("updated", None)
    assert (await home.catalogue.root("team")).path == directory


async def test_removing_takes_the_entry_and_the_profiles_and_leaves_the_cache(home: Home, repository: Any) -> None:
    await home.collections.add("team", f"{repository.source}@main")

    await home.collections.remove("team")

    assert not (home.paths.profiles / "team").exists()
    assert "team" not in home.paths.collections_file.read_text()
    assert "team" not in home.paths.collections_lock.read_text()
    assert (home.paths.cache / "git" / repository.git("rev-parse", "HEAD")).is_dir()
    with pytest.raises(CollectionError, match=r"^Collection not found: team$"):
        await home.collections.remove("team")


async def test_a_collection_in_use_is_removed_only_by_force(new_home: Callable[..., Home], directory: Path) -> None:
    home = new_home(in_use=lambda profile_id: profile_id == ProfileId("team", "base"))
    await home.collections.add("team", str(directory))

    with pytest.raises(CollectionError) as refused:
        await home.collections.remove("team")

    assert refused.value.code == "collection-in-use"
    assert home.collections.has_profile("team/base")
    assert home.paths.profile_file("team/base").exists()
    await home.collections.remove("team", force=True)
    assert not (home.paths.profiles / "team").exists()


async def test_a_disabled_collection_is_listed_and_its_profiles_are_unusable(home: Home, directory: Path) -> None:
    await home.collections.add("team", str(directory))

    await home.collections.update("team", enabled=False)

    assert home.collections.get("team").status == "disabled"
    assert ProfileId("team", "base") not in home.collections.profile_ids()
    assert not home.collections.has_profile("team/base")
    assert home.catalogue.find_owners("base") == ()
    with pytest.raises(CollectionError) as refused:
        await home.catalogue.root("team")
    assert refused.value.code == "collection-disabled"


async def test_an_entry_that_is_invalid_can_be_removed(home: Home, register: Callable[[str], None]) -> None:
    register("collections:\n  team: {enabled: true}\n  other: ../o\n")

    await home.collections.remove("team")

    assert home.paths.collections_file.read_text() == "collections:\n  other: ../o\n"


HOSTILE = ["../x", "..", ".", "", "a/b", "a\\b", "a:b", "a\0b", "A", "-a", "a" * 65, "/etc", "x\n"]


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_hostile_ids_are_refused_at_every_entrance(
    home: Home, directory: Path, tmp_path: Path, hostile: str
) -> None:
    victim = home.paths.profiles.parent / "x"
    victim.mkdir(parents=True)
    collections = home.collections

    for call in (
        lambda: collections.add(hostile, str(directory)),
        lambda: collections.update(hostile, str(directory)),
        lambda: collections.remove(hostile, force=True),
        lambda: collections.sync([hostile]),
        lambda: home.catalogue.root(hostile),
        lambda: collections.inventory(hostile),
    ):
        with pytest.raises(CollectionError) as refused:
            await call()
        assert refused.value.code == "invalid-identifier"
    with pytest.raises(CollectionError):
        collections.get(hostile)
    for look in (
        home.paths.profile_file,
        home.catalogue.reference_base,
        collections.has_profile,
        home.catalogue.is_orphaned,
        home.paths.profile_dir,
        home.paths.overlay_file,
    ):
        for profile_id in (
            f"{hostile}/base",
            f"team/{hostile}",
            ProfileId(hostile, "base"),
            ProfileId("team", hostile),
        ):
            with pytest.raises(ValueError, match="Invalid profile_id format"):
                look(profile_id)
    with pytest.raises(ValueError, match="Invalid profile_id format"):
        await home.catalogue.ensure_profile(f"team/{hostile}")
    assert victim.is_dir()
    assert not home.paths.collections_file.exists()


async def test_hostile_names_in_the_stored_state_are_not_followed(home: Home, tmp_path: Path) -> None:
    home.paths.share.mkdir(parents=True)
    home.paths.collections_lock.write_text(
        '{"format_version": 1, "collections": {"../x": {"source": "s", "synced_at": "2026", "profiles": {}},'
        ' "gone": {"source": "s", "synced_at": "2026", "profiles": {"../../x": {"path": "a"}},'
        ' "orphaned": ["../../x"]}}}'
    )
    victim = home.paths.share / "x"
    victim.mkdir()

    results = await home.collections.sync()

    assert sorted(results) == ["foundation", "gone"]
    assert victim.is_dir()


async def test_the_users_own_collection_is_reserved(home: Home, directory: Path) -> None:
    for call in (
        home.collections.add("local", str(directory)),
        home.collections.update("local", str(directory)),
        home.collections.remove("local", force=True),
    ):
        with pytest.raises(CollectionError) as refused:
            await call
        assert refused.value.code == "reserved-collection"


async def test_force_may_be_given_by_its_place_and_one_id_without_a_list(home: Home, directory: Path) -> None:
    await home.collections.add("team", str(directory))

    assert list(await home.collections.sync("team")) == ["team"]

    await home.collections.remove("team", True)

    with pytest.raises(CollectionError, match="Collection not found: team"):
        home.collections.get("team")
