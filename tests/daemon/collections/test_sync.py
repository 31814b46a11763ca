"""Sync: what moved is brought in, what did not is left alone, and one collection's trouble is its own."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm_python

from amplifier_foundation.sources import ProgressEvent
from amplifierd import Home, ProfileId
from amplifierd.exceptions import CollectionError, FormatUnsupportedError


async def test_a_registry_written_by_hand_is_synced_into_profiles_and_a_lock(
    home: Home, repository: Any, register: Callable[[str], None], text: Callable[..., str]
) -> None:
    commit = repository.git("rev-parse", "HEAD")
    register(f"collections:\n  team:\n    source: {repository.source}@main\n")

    result = (await home.collections.sync())["team"]

    assert (result.status, result.commit_before, result.commit_after, result.errors) == ("synced", None, commit, ())
    assert dict(result.profiles) == {"base": "extracted"}
    assert home.paths.profile_file("team/base").read_text() == text("base")
    lock = json.loads(home.paths.collections_lock.read_text())
    team = lock["collections"]["team"]
    assert lock["format_version"] == 1
    assert sorted(team) == ["commit", "content_hash", "errors", "profiles", "source", "synced_at"]
    assert (team["source"], team["commit"], team["errors"]) == (f"{repository.source}@main", commit, [])
    assert team["profiles"]["base"]["path"] == "profiles/base.md"
    assert team["profiles"]["base"]["version"] == "1.0.0"
    assert len(team["profiles"]["base"]["hash"]) == 64
    assert team["content_hash"].startswith("sha256:")
    assert team["synced_at"].endswith("Z")
    assert (home.paths.cache / "git" / commit / "profiles" / "base.md").is_file()


@pytest.mark.parametrize("ref", ["@main", "", "@v1", "@commit"])
async def test_syncing_again_fetches_nothing_and_touches_nothing(
    home: Home,
    repository: Any,
    register: Callable[[str], None],
    snapshot: Callable[[], object],
    git_calls: Callable[[], list[str]],
    ref: str,
) -> None:
    repository.git("tag", "v1")
    ref = f"@{repository.git('rev-parse', 'HEAD')}" if ref == "@commit" else ref
    register(f"collections:\n  team: {repository.source}{ref}\n")
    await home.collections.sync()
    before, calls = snapshot(), len(git_calls())

    results = await home.collections.sync()

    assert {result.status for result in results.values()} == {"unchanged"}
    assert dict(results["team"].profiles) == {"base": "unchanged"}
    assert snapshot() == before
    assert [call for call in git_calls()[calls:] if "ls-remote" not in call] == []


async def test_a_moved_branch_changes_nothing_until_sync_and_then_only_what_moved(
    home: Home, repository: Any, new_repository: Any, snapshot: Callable[[], Any], text: Callable[..., str]
) -> None:
    repository.commit({"profiles/other.md": text("other"), "profiles/old.md": text("old")})
    still = new_repository("still")
    await home.collections.add("team", f"{repository.source}@main")
    await home.collections.add("still", f"{still.source}@main")
    first = home.collections.get("team").commit
    before = snapshot()

    moved = repository.commit(
        {"profiles/base.md": text("base", body="Moved."), "profiles/new.md": text("new"), "profiles/old.md": None}
    )

    assert home.collections.get("team").commit == first
    assert (await home.catalogue.root("team")).commit == first
    await home.catalogue.ensure_profile("team/base")
    assert (await home.collections.sync(["team"], refresh=False))["team"].status == "unchanged"
    assert snapshot() == before
    results = await home.collections.sync()
    assert (results["team"].status, results["team"].commit_before, results["team"].commit_after) == (
        *("updated", first, moved),
    )
    assert dict(results["team"].profiles) == {
        **{"base": "extracted", "new": "extracted"},
        **{"other": "unchanged", "old": "removed"},
    }
    assert results["still"].status == "unchanged"
    assert "Moved." in home.paths.profile_file("team/base").read_text()
    assert not home.paths.profile_dir("team/old").exists()
    after = snapshot()
    for untouched in ("team/other", "still/base"):
        path = str(home.paths.profile_file(untouched))
        assert after[path] == before[path]


async def test_a_moved_tag_is_noticed_only_by_asking(home: Home, repository: Any, text: Callable[..., str]) -> None:
    repository.git("tag", "v1")
    await home.collections.add("team", f"{repository.source}@v1")
    moved = repository.commit({"profiles/base.md": text("base", body="Moved.")})
    repository.git("tag", "--force", "v1")

    assert (await home.collections.sync(refresh=False))["team"].status == "unchanged"
    assert (await home.collections.sync())["team"].commit_after == moved


async def test_a_local_source_is_compared_by_content(home: Home, tmp_path: Path, text: Callable[..., str]) -> None:
    source = tmp_path / "source"
    (source / "profiles").mkdir(parents=True)
    (source / "profiles" / "base.md").write_text(text("base"))
    await home.collections.add("team", str(source))
    (source / "profiles" / "base.md").touch()
    assert (await home.collections.sync())["team"].status == "unchanged"

    (source / "profiles" / "base.md").write_text(text("base", body="Edited."))
    result = (await home.collections.sync())["team"]

    assert (result.status, dict(result.profiles)) == ("updated", {"base": "extracted"})
    assert "Edited." in home.paths.profile_file("team/base").read_text()


async def test_a_changed_source_in_the_registry_is_noticed(
    home: Home, repository: Any, new_repository: Any, register: Callable[[str], None], text: Callable[..., str]
) -> None:
    register(f"collections:\n  team: {repository.source}@main\n")
    await home.collections.sync()
    other = new_repository("other", {"profiles/else.md": text("else")})

    register(f"collections:\n  team: {other.source}@main\n")
    result = (await home.collections.sync())["team"]

    assert (result.status, dict(result.profiles)) == ("updated", {"else": "extracted", "base": "removed"})
    assert home.collections.profile_ids() == ("foundation/core", "team/else")


async def test_a_subdirectory_of_a_repository_is_a_collection(
    home: Home, new_repository: Any, text: Callable[..., str]
) -> None:
    repository = new_repository(files={"sets/a/base.md": text(), "sets/b/other.md": text(), "top.md": text()})

    await home.collections.add("team", f"{repository.source}@main#subdirectory=sets/a")
    await home.collections.add("legacy", f"{repository.source}@main/sets/b")

    assert home.collections.profile_ids() == ("team/base", "legacy/other")
    for collection, folder in (("team", "sets/a"), ("legacy", "sets/b")):
        root = await home.catalogue.root(collection)
        assert root.path == root.boundary / folder
        assert root.boundary == home.paths.cache / "git" / str(root.commit)


async def test_entries_that_are_disabled_or_not_synced_automatically_are_skipped(
    home: Home, repository: Any, register: Callable[[str], None]
) -> None:
    register(
        f"collections:\n  paused: {{source: '{repository.source}@main', enabled: false}}\n"
        f"  manual: {{source: '{repository.source}@main', auto_sync: false}}\n  bad: {{enabled: true}}\n"
    )

    results = await home.collections.sync()

    assert {key: result.status for key, result in results.items()} == {
        **{"foundation": "synced", "paused": "skipped", "manual": "skipped", "bad": "skipped"},
    }
    assert [issue.code for issue in results["bad"].errors] == ["source-missing"]
    asked = await home.collections.sync(["manual", "paused"])
    assert {key: result.status for key, result in asked.items()} == {"manual": "synced", "paused": "skipped"}


async def test_an_unknown_collection_is_an_error_before_anything_is_done(home: Home) -> None:
    with pytest.raises(CollectionError, match=r"^Collection not found: nobody$"):
        await home.collections.sync(["foundation", "nobody"])

    assert not home.paths.collections_lock.exists()


async def test_one_failure_touches_no_other_and_the_last_good_state_stays(
    home: Home, repository: Any, new_repository: Any, text: Callable[..., str], new_home: Callable[..., Home]
) -> None:
    other = new_repository("other")
    await home.collections.add("bad", f"{repository.source}@main")
    await home.collections.add("good", f"{other.source}@main")
    shutil.move(repository.path, repository.path.with_name("away"))
    other.commit({"profiles/base.md": text("base", body="Moved.")})

    results = await home.collections.sync()

    assert (results["bad"].status, results["good"].status) == ("error", "updated")
    assert [issue.code for issue in results["bad"].errors] == ["sync-failed"]
    assert home.collections.has_profile("bad/base")
    assert (await home.catalogue.root("bad")).path.is_dir()
    listed = new_home().collections.get("bad")
    assert (listed.status, [issue.code for issue in listed.warnings]) == ("error", ["sync-failed"])
    shutil.move(repository.path.with_name("away"), repository.path)
    assert (await home.collections.sync())["bad"].status == "unchanged"
    assert (home.collections.get("bad").status, home.collections.get("bad").warnings) == ("synced", ())


async def test_a_link_that_leads_out_of_a_local_source_fails_that_collection(
    home: Home, tmp_path: Path, register: Callable[[str], None], text: Callable[..., str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "base.md").write_text(text())
    (source / "out.md").symlink_to(tmp_path / "shipped" / "profiles" / "core.md")
    register(f"collections:\n  team: {source}\n")

    result = (await home.collections.sync())["team"]

    assert result.status == "error"
    assert "leads out of its source" in result.errors[0].message
    assert not (home.paths.profiles / "team").exists()


async def test_check_says_what_would_happen_and_changes_nothing(
    home: Home, repository: Any, register: Callable[[str], None], tmp_path: Path, text: Callable[..., str]
) -> None:
    local = tmp_path / "source"
    local.mkdir()
    (local / "base.md").write_text(text())
    register(f"collections:\n  team: {repository.source}@main\n  here: {local}\n  gone: {local}\n")

    def everything() -> dict[str, int]:
        return {str(path): path.lstat().st_mtime_ns for path in sorted(home.paths.home.rglob("*"))}

    untouched = everything()
    fresh = await home.collections.sync(check=True)
    assert {result.status for result in fresh.values()} == {"synced"}
    assert everything() == untouched
    await home.collections.sync()
    first = repository.git("rev-parse", "HEAD")
    moved = repository.commit({"profiles/base.md": text("base", body="Moved.")})
    (local / "base.md").write_text(text(body="Edited."))
    register(f"collections:\n  team: {repository.source}@main\n  here: {local}\n")
    before = everything()

    results = await home.collections.sync(check=True)

    assert (results["team"].status, results["team"].commit_before, results["team"].commit_after) == (
        *("updated", first, moved),
    )
    assert (results["here"].status, results["foundation"].status) == ("updated", "unchanged")
    assert (results["gone"].status, dict(results["gone"].profiles)) == ("updated", {"base": "removed"})
    assert everything() == before


async def test_a_collection_taken_out_of_the_registry_by_hand_is_cleared_away(
    home: Home, repository: Any, register: Callable[[str], None]
) -> None:
    register(f"collections:\n  team: {repository.source}@main\n")
    await home.collections.sync()

    register("collections: {}\n")
    assert home.collections.profile_ids() == (ProfileId("foundation", "core"),)
    result = (await home.collections.sync())["team"]

    assert (result.status, dict(result.profiles)) == ("updated", {"base": "removed"})
    assert not (home.paths.profiles / "team").exists()
    assert sorted(await home.collections.sync()) == ["foundation"]


async def test_a_vanished_profile_stays_as_an_orphan_while_a_session_uses_it(
    new_home: Callable[..., Home], repository: Any, text: Callable[..., str]
) -> None:
    used = {ProfileId("team", "base")}
    home = new_home(in_use=used.__contains__)
    repository.commit({"profiles/other.md": text("other")})
    await home.collections.add("team", f"{repository.source}@main")
    repository.commit({"profiles/base.md": None, "profiles/other.md": None})

    result = (await home.collections.sync())["team"]

    assert dict(result.profiles) == {"other": "removed"}
    assert home.paths.profile_file("team/base").is_file()
    assert home.catalogue.is_orphaned("team/base")
    assert not home.collections.has_profile("team/base")
    assert [(profile.name, profile.status) for profile in home.collections.get("team").profiles] == [
        ("base", "orphaned")
    ]
    assert await home.collections.remove_orphans() == ()
    used.clear()
    assert await home.collections.remove_orphans() == (ProfileId("team", "base"),)
    assert not home.paths.profile_dir("team/base").exists()
    assert not home.catalogue.is_orphaned("team/base")


async def test_an_orphan_is_also_removed_by_the_sync_after_its_last_session(
    new_home: Callable[..., Home], repository: Any
) -> None:
    used = {ProfileId("team", "base")}
    home = new_home(in_use=used.__contains__)
    await home.collections.add("team", f"{repository.source}@main")
    repository.commit({"profiles/base.md": None})
    await home.collections.sync()
    used.clear()

    await home.collections.sync()

    assert not home.paths.profile_dir("team/base").exists()
    assert not home.catalogue.is_orphaned("team/base")


async def test_deleted_or_edited_copies_come_back_from_the_synced_commit(
    home: Home, repository: Any, text: Callable[..., str]
) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    lock = home.paths.collections_lock.read_bytes()
    repository.commit({"profiles/base.md": text("base", body="Moved.")})
    shutil.rmtree(home.paths.profiles / "team")
    shutil.rmtree(home.paths.cache)

    await home.catalogue.ensure_profile("team/base")

    assert home.paths.profile_file("team/base").read_text() == text("base")
    assert home.paths.collections_lock.read_bytes() == lock
    home.paths.profile_file("team/base").write_text("edited\n")
    assert (await home.collections.sync(["team"], refresh=False))["team"].status == "unchanged"
    assert home.paths.profile_file("team/base").read_text() == text("base")
    assert home.paths.collections_lock.read_bytes() == lock


async def test_the_files_of_the_synced_commit_are_fetched_again_when_the_cache_was_deleted(
    home: Home, repository: Any, text: Callable[..., str]
) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    first = home.collections.get("team").commit
    repository.commit({"profiles/base.md": text("base", body="Moved.")})
    shutil.rmtree(home.paths.cache)

    root = await home.catalogue.root("team")

    assert (root.commit, root.path) == (first, home.paths.cache / "git" / str(first))
    assert (root.path / "profiles" / "base.md").read_text() == text("base")
    assert str(root.reference) == f"{repository.source}@main"
    assert root.content_hash == home.collections.get("team").content_hash


async def test_relative_references_count_from_the_original_directory(home: Home, repository: Any) -> None:
    await home.collections.add("team", f"{repository.source}@main")

    base = home.catalogue.reference_base("team/base")

    assert (base.collection, base.directory.as_posix()) == ("team", "profiles")


async def test_a_profile_file_of_windows_is_stored_with_plain_line_ends(
    home: Home, tmp_path: Path, text: Callable[..., str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "base.md").write_bytes(b"\xef\xbb\xbf" + text().replace("\n", "\r\n").encode())

    await home.collections.add("team", str(source))

    assert home.paths.profile_file("team/base").read_bytes() == text().encode()
    assert (await home.collections.sync())["team"].status == "unchanged"


async def test_500_profiles_are_one_pass(home: Home, tmp_path: Path, text: Callable[..., str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(500):
        (source / f"p{number:03}.md").write_text(text())
    events: list[ProgressEvent] = []
    home = Home(home.paths, home.settings, home.sources, progress=events.append)

    result = await home.collections.add("team", str(source))
    (source / "p007.md").write_text(text(body="Edited."))
    outcome = (await home.collections.sync())["team"]

    assert result.profile_count == 500
    assert [name for name, state in outcome.profiles.items() if state != "unchanged"] == ["p007"]
    assert len(home.collections.profile_ids()) == 500
    assert [(event.what, event.ref, event.phase) for event in events] == [
        ("collection", "team", "fetching"),
        ("collection", "team", "ready"),
    ] * 2


async def test_two_syncs_at_once_in_one_process_agree(
    home: Home, repository: Any, register: Callable[[str], None]
) -> None:
    register(f"collections:\n  team: {repository.source}@main\n")

    first, second = await asyncio.gather(home.collections.sync(), home.collections.sync())

    assert sorted([first["team"].status, second["team"].status]) == ["synced", "unchanged"]
    assert list((home.paths.profiles / "team").iterdir()) == [home.paths.profile_dir("team/base")]


async def test_syncs_in_several_processes_agree(
    home: Home, new_repository: Any, register: Callable[[str], None], shipped: Path
) -> None:
    sources = {f"c{number}": new_repository(f"r{number}").source for number in range(3)}
    register("collections:\n" + "".join(f"  {name}: {source}@main\n" for name, source in sources.items()))
    program = (
        "import asyncio, sys, pathlib, amplifierd\n"
        "home = amplifierd.open_home(sys.argv[1], shipped_collection=pathlib.Path(sys.argv[2]))\n"
        "results = asyncio.run(home.collections.sync(compile=False))\n"
        "assert {r.status for r in results.values()} <= {'synced', 'unchanged'}, results\n"
    )
    command = [sys.executable, "-c", program, str(home.paths.home), str(shipped)]

    runs = [asyncio.to_thread(warm_python.run, command, capture_output=True, text=True) for _ in range(2)]

    assert [(done.returncode, done.stderr) for done in await asyncio.gather(*runs)] == [(0, "")] * 2
    assert len(home.collections.profile_ids()) == 4
    lock = json.loads(home.paths.collections_lock.read_text())
    assert sorted(lock["collections"]) == ["c0", "c1", "c2", "foundation"]


async def test_the_event_loop_stays_free_while_a_sync_works(
    home: Home, tmp_path: Path, text: Callable[..., str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(60):
        (source / f"p{number:03}.md").write_text(text())
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    counting = asyncio.create_task(count_turns())
    await home.collections.add("team", str(source))
    counting.cancel()

    assert turns > 5


async def test_a_lock_of_a_newer_format_is_refused_and_left_alone(home: Home) -> None:
    home.paths.share.mkdir(parents=True)
    content = '{"format_version": 2, "collections": {}}'
    home.paths.collections_lock.write_text(content)

    for attempt in (home.collections.sync(), home.collections.sync(check=True), home.catalogue.root("foundation")):
        with pytest.raises(FormatUnsupportedError, match=r"collections\.lock has format 2, this version reads up to 1"):
            await attempt
    with pytest.raises(FormatUnsupportedError):
        home.collections.profile_ids()
    assert home.paths.collections_lock.read_text() == content


async def test_a_lock_of_an_older_format_is_backed_up_and_migrated(home: Home, repository: Any) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    current = json.loads(home.paths.collections_lock.read_text())
    older = json.dumps({"collections": current["collections"]})
    home.paths.collections_lock.write_text(older)

    assert home.collections.has_profile("team/base")

    assert home.paths.collections_lock.with_name("collections.lock.v0.bak").read_text() == older
    assert json.loads(home.paths.collections_lock.read_text()) == current
    assert (await home.collections.sync())["team"].status == "unchanged"


async def test_a_lock_that_cannot_be_read_is_made_anew(home: Home, repository: Any) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    home.paths.collections_lock.write_text("{half")

    assert home.collections.profile_ids() == ()
    results = await home.collections.sync()

    assert {result.status for result in results.values()} == {"synced"}
    assert home.collections.has_profile("team/base")
