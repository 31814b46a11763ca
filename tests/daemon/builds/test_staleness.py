"""When a build is made again, and what of it: every reason has its word and its action."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd.exceptions import FormatUnsupportedError, ProfileCompilationError

PACKAGE = "amplifier_module_tool_own"


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the bytes of every file, and what tells whether it was touched."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[path.relative_to(directory).as_posix()] = (status.st_ino, status.st_mtime_ns, content)
    return found


def inode(build: Any, path: str) -> int:
    return int((build.path / path).stat().st_ino)


@pytest.fixture
def repository(bench: Any, new_repository: Callable[..., Any]) -> Any:
    files = {f"tool/{name}": text for name, text in bench.module_files("tool-own").items()}
    return new_repository("modules", files | {"docs/a.md": "A\n", "expert.md": "Expert.\n"})


@pytest.fixture
def sections(bench: Any, repository: Any) -> dict[str, Any]:
    """A profile with a module from git, an agent from git and a module of this machine."""
    return {
        "tools": [{"module": "tool-own", "source": f"{repository.source}@main#subdirectory=tool"}],
        "hooks": [{"module": "hooks-near", "source": bench.write_module("hooks-near")}],
        "agents": {"expert": f"{repository.source}@main#expert.md"},
    }


async def codes(bench: Any, profile_id: str = "local/mine") -> tuple[str, ...]:
    found: tuple[str, ...] = (await bench.home.profiles.status(profile_id)).codes
    return found


async def test_a_profile_without_a_build_is_missing_one(bench: Any) -> None:
    bench.write_profile()

    status = await bench.home.profiles.status("local/mine")

    assert (status.status, status.codes, status.build_id) == ("missing", ("lock-missing",), None)


async def test_when_nothing_changed_nothing_is_written_started_or_read_again(
    bench: Any, sections: dict[str, Any], activity: Any
) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    before = snapshot(bench.home.paths.home)
    home = bench.reopen()

    with activity.watching():
        second = await home.profiles.compile("local/mine")

    assert second == first
    assert (activity.written, activity.started) == ([], [])
    assert [path for path in activity.opened if "amplifier_module_" in path or path.endswith("expert.md")] == []
    assert snapshot(bench.home.paths.home) == before


async def test_a_change_of_configuration_makes_a_new_build_and_fetches_and_copies_nothing(
    bench: Any, sections: dict[str, Any], repository: Any, activity: Any
) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    hash_before = bench.lock()["profile_hash"]
    repository.git("branch", "--move", "main", "gone")
    bench.write_profile(**sections, providers=[{"module": "provider-mock", "config": {"x": 1}}], body="Words.")
    assert await codes(bench) == ("profile-changed",)

    with activity.watching():
        second = await bench.home.profiles.compile("local/mine")

    assert activity.started == []
    assert [path for path in activity.opened if path.endswith("tool_own/__init__.py")] == []
    assert bench.lock()["profile_hash"] != hash_before
    assert second.build_id != first.build_id
    assert bench.lock()["resources"]["tools"][0]["commit"] == repository.git("rev-parse", "gone")


async def test_unchanged_resources_are_shared_between_builds(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    with first.hold():
        bench.write_profile(**sections, body="Words.")
        second = await bench.home.profiles.compile("local/mine")

        path = f"tools/tool-own/{PACKAGE}/__init__.py"
        assert inode(first, path) == inode(second, path)
        assert inode(first, "profile.md") != inode(second, "profile.md")


async def test_only_a_changed_reference_is_resolved(bench: Any, sections: dict[str, Any], repository: Any) -> None:
    bench.write_profile(**sections)
    await bench.home.profiles.compile("local/mine")
    old = repository.git("rev-parse", "HEAD")
    repository.commit({"expert.md": "Wiser.\n", f"tool/{PACKAGE}/__init__.py": "x = 2\n"})
    repository.git("tag", "v2")

    bench.write_profile(**sections | {"agents": {"expert": f"{repository.source}@v2#expert.md"}})
    build = await bench.home.profiles.compile("local/mine")

    resources = bench.lock()["resources"]
    assert (build.path / "agents/expert.md").read_text() == "Wiser.\n"
    assert resources["agents"]["expert"]["commit"] == repository.git("rev-parse", "HEAD")
    assert resources["agents"]["expert"]["mutable"] is False
    assert resources["tools"][0]["commit"] == old


async def test_a_resource_that_is_no_longer_named_leaves_the_build(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    await bench.home.profiles.compile("local/mine")
    bench.write_profile(**sections | {"agents": {}})

    build = await bench.home.profiles.compile("local/mine")

    assert not (build.path / "agents").exists()
    assert bench.lock()["resources"]["agents"] == {}


async def test_a_changed_parent_makes_every_descendant_stale(bench: Any) -> None:
    bench.write_profile("root")
    bench.write_profile("middle", extends="root")
    bench.write_profile("mine", extends="middle")
    first = await bench.home.profiles.compile("local/mine")
    assert [link["profile"] for link in bench.lock()["chain"]] == ["local/root", "local/middle"]

    bench.write_profile("root", body="New words.")

    status = await bench.home.profiles.status("local/mine")
    assert [str(reason) for reason in status.reasons] == ["parent-changed: local/root"]
    assert (await bench.home.profiles.compile("local/mine")).build_id != first.build_id
    assert await codes(bench) == ()


async def test_an_overlay_of_the_user_counts_as_a_change_of_the_profile(bench: Any) -> None:
    bench.write_profile()
    await bench.home.profiles.compile("local/mine")
    source = bench.write_module("tool-own")
    overlay = bench.home.paths.overlay_file("local/mine")
    overlay.parent.mkdir(parents=True)
    overlay.write_text(f"---\n{json.dumps({'tools': [{'module': 'tool-own', 'source': source}]})}\n---\n")

    assert await codes(bench) == ("profile-changed",)

    build = await bench.home.profiles.compile("local/mine")
    assert (build.path / "tools/tool-own").is_dir()
    assert await codes(bench) == ()


async def test_a_deleted_module_is_restored_from_the_cached_commit(
    bench: Any, sections: dict[str, Any], repository: Any
) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    locked = bench.lock()["resources"]["tools"][0]
    repository.commit({f"tool/{PACKAGE}/__init__.py": "x = 2\n"})
    shutil.move(repository.path, repository.path.with_name("unreachable"))
    shutil.rmtree(first.path / "tools" / "tool-own")
    assert await codes(bench) == ("resource-missing",)

    second = await bench.home.profiles.compile("local/mine", frozen=True)

    assert second.build_id == first.build_id
    assert second.path.name == f"{first.build_id}.1"
    assert bench.lock()["resources"]["tools"][0] == locked
    assert (await bench.home.profiles.verify("local/mine")).status == "fresh"


@pytest.mark.parametrize("path", [f"tools/tool-own/{PACKAGE}/__init__.py", "agents/expert.md"])
async def test_a_single_flipped_bit_is_found_and_repaired(
    bench: Any, sections: dict[str, Any], repository: Any, path: str
) -> None:
    bench.write_profile(**sections)
    build = await bench.home.profiles.compile("local/mine")
    original = (build.path / path).read_bytes()
    (build.path / path).write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    shutil.move(repository.path, repository.path.with_name("unreachable"))

    status = await bench.home.profiles.verify("local/mine")

    assert (status.status, status.codes) == ("stale", ("resource-modified",))
    assert await codes(bench) == ("resource-modified",)
    repaired = await bench.home.profiles.compile("local/mine")
    assert (repaired.path / path).read_bytes() == original
    assert (await bench.home.profiles.verify("local/mine")).status == "fresh"


async def test_a_cache_that_was_tampered_with_is_no_repair(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    build = await bench.home.profiles.compile("local/mine")
    shutil.rmtree(build.path / "tools" / "tool-own")
    (cached,) = bench.home.paths.cache.glob(f"git/*/tool/{PACKAGE}/__init__.py")
    cached.write_text("evil = True\n")

    with pytest.raises(ProfileCompilationError, match="not those that were locked"):
        await bench.home.profiles.compile("local/mine")


async def test_a_moved_branch_changes_nothing_until_a_refresh_and_then_only_what_moved(
    bench: Any, sections: dict[str, Any], repository: Any
) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    before = bench.lock()["resources"]
    commit = repository.commit({f"tool/{PACKAGE}/__init__.py": "x = 2\n"})

    assert await bench.home.profiles.compile("local/mine") == first
    with first.hold():
        second = await bench.home.profiles.compile("local/mine", refresh=True)

        after = bench.lock()["resources"]
        assert second.build_id != first.build_id
        assert after["tools"][0]["commit"] == commit
        assert (second.path / f"tools/tool-own/{PACKAGE}/__init__.py").read_text() == "x = 2\n"
        assert (first.path / f"tools/tool-own/{PACKAGE}/__init__.py").read_text() != "x = 2\n"
        assert after["hooks"] == before["hooks"]
        assert await bench.home.profiles.compile("local/mine", refresh=True) == second


async def test_every_reference_that_a_remote_lost_is_told_and_the_build_stays(
    bench: Any, sections: dict[str, Any], repository: Any
) -> None:
    bench.write_profile(**sections)
    build = await bench.home.profiles.compile("local/mine")
    repository.git("branch", "--move", "main", "gone")

    with pytest.raises(ProfileCompilationError, match="cannot be refreshed") as caught:
        await bench.home.profiles.compile("local/mine", refresh=True)

    assert len(caught.value.problems) == 2
    assert await bench.home.profiles.compile("local/mine") == build


async def test_a_collection_that_moved_brings_its_own_files_along(
    bench: Any, new_repository: Callable[..., Any]
) -> None:
    text = bench.profile_text("base", agents={"one": "../agents/one.md"})
    repository = new_repository("team", {"profiles/base.md": text, "agents/one.md": "One.\n"})
    await bench.home.collections.add("team", f"{repository.source}@main")
    await bench.home.profiles.compile("team/base")
    repository.commit({"agents/one.md": "Two.\n"})

    assert await codes(bench, "team/base") == ()
    await bench.home.collections.sync(["team"], compile=False)
    assert await codes(bench, "team/base") == ("ref-moved",)
    build = await bench.home.profiles.compile("team/base")

    assert (build.path / "agents/one.md").read_text() == "Two.\n"


async def test_a_changed_local_source_is_copied_again(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    source = bench.tmp_path / "modules/hooks-near/amplifier_module_hooks_near/__init__.py"
    source.write_text("x = 2\n")
    assert await codes(bench) == ("source-changed",)

    with first.hold():
        second = await bench.home.profiles.compile("local/mine")

        path = "hooks/hooks-near/amplifier_module_hooks_near/__init__.py"
        assert (second.path / path).read_text() == "x = 2\n"
        assert (first.path / path).read_text() != "x = 2\n"
        kept = f"tools/tool-own/{PACKAGE}/__init__.py"
        assert inode(first, kept) == inode(second, kept)


async def test_a_local_source_that_was_only_touched_is_the_same(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    source = bench.tmp_path / "modules/hooks-near"
    (source / "amplifier_module_hooks_near/__init__.py").touch()
    (source / "README.md").write_text("Not a part of the module.\n")

    assert await bench.home.profiles.compile("local/mine") == first


async def test_a_build_outlives_its_local_source(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    shutil.rmtree(bench.tmp_path / "modules/hooks-near")

    assert await bench.home.profiles.compile("local/mine") == first
    status = await bench.home.profiles.status("local/mine")
    assert (status.status, status.warnings[0].partition(":")[0]) == ("fresh", "source-missing")


async def test_another_version_of_an_installed_module_makes_another_build(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "amplifier_module_tool_extra-1.0.dist-info"
    bench.write_files(site, {"amplifier_module_tool_extra/__init__.py": "x = 1\n"})
    bench.write_files(info, {"METADATA": "Metadata-Version: 2.1\nName: amplifier-module-tool-extra\nVersion: 1.0\n"})
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    bench.write_profile(tools=[{"module": "tool-extra"}])
    first = await bench.home.profiles.compile("local/mine")
    assert bench.lock()["resources"]["tools"][0]["version"] == "1.0"

    (site / "amplifier_module_tool_extra/__init__.py").write_text("x = 22\n")
    assert await codes(bench) == ("installed-changed",)
    second = await bench.home.profiles.compile("local/mine")
    info.rename(site / "amplifier_module_tool_extra-2.0.dist-info")
    (site / "amplifier_module_tool_extra-2.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: amplifier-module-tool-extra\nVersion: 2.0\n"
    )
    assert await codes(bench) == ("installed-changed",)
    await bench.home.profiles.compile("local/mine")

    assert first.build_id != second.build_id
    assert bench.lock()["resources"]["tools"][0]["version"] == "2.0"
    assert await codes(bench) == ()


async def test_another_python_makes_another_build(bench: Any, sections: dict[str, Any]) -> None:
    bench.write_profile(**sections)
    build = await bench.home.profiles.compile("local/mine")
    lock = bench.lock()
    (build.path / "profile.lock").write_text(json.dumps(lock | {"python": "3.0"}))

    assert await codes(bench) == ("environment-changed",)

    await bench.home.profiles.compile("local/mine")
    assert bench.lock()["python"] == lock["python"]
    assert await codes(bench) == ()


async def test_a_deleted_or_unreadable_lock_makes_everything_anew_from_the_cache(
    bench: Any, sections: dict[str, Any], repository: Any
) -> None:
    bench.write_profile(**sections)
    build = await bench.home.profiles.compile("local/mine")
    shutil.move(repository.path, repository.path.with_name("unreachable"))

    for content, code in ((None, "lock-missing"), ("{", "lock-corrupt"), ('{"format_version": 1}', "lock-corrupt")):
        lock = bench.home.paths.profile_dir("local/mine") / "profile.lock"
        lock.unlink() if content is None else lock.write_text(content)
        assert await codes(bench) == (code,)
        again = await bench.home.profiles.compile("local/mine")
        assert again.build_id == build.build_id
        assert await codes(bench) == ()


async def test_force_resolves_everything_and_publishes_nothing_that_is_the_same(
    bench: Any, sections: dict[str, Any], repository: Any
) -> None:
    bench.write_profile(**sections)
    first = await bench.home.profiles.compile("local/mine")
    assert await bench.home.profiles.compile("local/mine", force=True) == first

    repository.commit({f"tool/{PACKAGE}/__init__.py": "x = 2\n"})
    second = await bench.home.profiles.compile("local/mine", force=True)

    assert (second.path / f"tools/tool-own/{PACKAGE}/__init__.py").read_text() == "x = 2\n"


CHANGES: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    "profile-changed": lambda bench, sections: bench.write_profile(**sections, body="Words."),
    "source-changed": lambda bench, sections: bench.write_module(
        "hooks-near", {"amplifier_module_hooks_near/x.py": ""}
    ),
    "lock-missing": lambda bench, sections: (bench.home.paths.profile_dir("local/mine") / "profile.lock").unlink(),
}


@pytest.mark.parametrize("code", CHANGES)
async def test_a_frozen_compile_refuses_anything_new_and_writes_nothing(
    bench: Any, sections: dict[str, Any], code: str
) -> None:
    bench.write_profile(**sections)
    await bench.home.profiles.compile("local/mine")
    assert await bench.home.profiles.compile("local/mine", frozen=True)
    CHANGES[code](bench, sections)
    before = snapshot(bench.home.paths.home)

    with pytest.raises(ProfileCompilationError) as caught:
        await bench.home.profiles.compile("local/mine", frozen=True)

    assert caught.value.code == "frozen"
    assert [text.partition(":")[0] for text in caught.value.problems] == [code]
    assert snapshot(bench.home.paths.home) == before


async def test_a_lock_of_the_first_format_is_backed_up_and_its_content_kept(
    bench: Any, sections: dict[str, Any], repository: Any
) -> None:
    bench.write_profile(**sections)
    build = await bench.home.profiles.compile("local/mine")
    directory = bench.home.paths.profile_dir("local/mine")
    resources = bench.lock()["resources"]
    core = ("name", "ref", "commit", "resolved_at")

    def old(entry: dict[str, Any]) -> dict[str, Any]:
        return {key: entry[key] for key in core if key in entry}

    old_lock = {
        "generated_at": "2025-11-28T10:30:00Z",
        "profile_hash": f"sha256:{bench.lock()['profile_hash']}",
        "resources": {
            "orchestrator": old(resources["orchestrator"]),
            "tools": [old(entry) for entry in resources["tools"]],
            "hooks": [old(entry) for entry in resources["hooks"]],
            "agents": {name: old(entry) for name, entry in resources["agents"].items()},
        },
    }
    plain = bench.tmp_path / "plain"
    shutil.copytree(build.path, plain)
    shutil.rmtree(directory.parent)
    directory.parent.mkdir()
    shutil.copytree(plain, directory)
    (directory / "profile.lock").write_text(json.dumps(old_lock))
    shutil.rmtree(bench.home.paths.cache)
    shutil.move(repository.path, repository.path.with_name("unreachable"))
    assert "lock-format" in await codes(bench)

    migrated = await bench.home.profiles.compile("local/mine")

    assert migrated.build_id == build.build_id
    assert json.loads((directory / "profile.lock.v0.bak").read_text()) == old_lock
    assert bench.lock()["format_version"] == 1
    assert bench.lock()["resources"]["tools"][0]["commit"] == resources["tools"][0]["commit"]
    assert (await bench.home.profiles.verify("local/mine")).status == "fresh"
    bench.write_profile(**sections, body="Words.")
    await bench.home.profiles.compile("local/mine")
    assert (directory / "profile.lock.v0.bak").is_file()


async def test_a_lock_of_a_newer_format_is_refused_and_left_as_it_is(bench: Any) -> None:
    bench.write_profile()
    build = await bench.home.profiles.compile("local/mine")
    lock = build.path / "profile.lock"
    lock.write_text(json.dumps(bench.lock() | {"format_version": 2}))
    before = snapshot(bench.home.paths.home)
    message = r"profile.lock has format 2, this version reads up to 1"

    for force in (False, True):
        with pytest.raises(FormatUnsupportedError, match=message):
            await bench.home.profiles.compile("local/mine", force=force)
    with pytest.raises(FormatUnsupportedError, match=message):
        await bench.home.profiles.status("local/mine")
    with pytest.raises(FormatUnsupportedError, match=message):
        bench.home.profiles.read_lock("local/mine")

    assert snapshot(bench.home.paths.home) == before


async def test_every_reason_says_what_will_be_done(bench: Any) -> None:
    bench.write_profile()

    told = (await bench.home.profiles.status("local/mine")).to_dict()

    assert told["status"] == "missing"
    assert told["reasons"] == [
        {
            "code": "lock-missing",
            "subject": "",
            "action": "everything is compiled, from the cache where it has it",
        }
    ]
