"""What a person writes is in `config/profiles`, and nothing that we do changes it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm_python

from amplifierd import Home
from amplifierd.exceptions import CollectionError, ProfileValidationError

OWN = {
    "mine/profile.md": "",
    "mine/agents/expert.md": "An expert.\n",
    "mine/.git/HEAD": "ref: refs/heads/main\n",
    "mine/.venv/pyvenv.cfg": "home = /usr\n",
    "shared/notes.txt": "keep\n",
    ".git/config": "[core]\n",
}
KILLED = r"""
import os, signal, sys
from amplifierd import open_home

CHANGES = {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod"}
state = {"left": int(sys.argv[2]), "on": False}


def watch(event, args):
    if state["on"] and (event in CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & 3)):
        state["left"] -= 1
        if state["left"] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


home = open_home(sys.argv[1])
home.collections
sys.addaudithook(watch)
state["on"] = True
home.collections.list()
state["on"] = False
print(state["left"])
"""


def write_own(root: Path, text: Callable[..., str]) -> None:
    for name, content in OWN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content or text("mine", extra="agents: {expert: ./agents/expert.md}"))
    (root / "mine" / "empty").mkdir()
    (root / "mine" / "agents" / "expert.md").chmod(0o640)
    os.link(root / "shared" / "notes.txt", root / "mine" / "linked.txt")


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything below a directory: mode, time and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        modified = status.st_mtime_ns if path.is_file() else 0
        found[path.relative_to(root).as_posix()] = (
            status.st_mode,
            modified,
            path.read_bytes() if path.is_file() else b"",
        )
    return found


async def test_compiling_syncing_and_removing_touch_nothing_that_a_person_wrote(
    home: Home, text: Callable[..., str], tmp_path: Path
) -> None:
    own = home.paths.own_profiles
    write_own(own, text)
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "child.md").write_text(text("child", extends="local/mine"))
    before = tree(own)

    await home.profiles.compile("local/mine")
    await home.collections.add("team", str(tmp_path / "team"), compile=True)
    await home.collections.sync(compile=True, force_compile=True)
    await home.profiles.compile("local/mine", force=True)
    await home.collections.remove("team", force=True)
    with pytest.raises(CollectionError, match="reserved"):
        await home.collections.remove("local", force=True)

    assert tree(own) == before
    assert home.paths.profile_dir("local/mine").is_symlink()


async def test_what_a_person_wrote_where_profiles_are_generated_cannot_be_a_source_and_stays(
    home: Home, text: Callable[..., str]
) -> None:
    there = home.paths.profiles / "team"
    write_own(there, text)
    before = tree(there)
    home.paths.collections_file.write_text("collections:\n  team: ./profiles/team\n  some: ./profiles/team/mine\n")

    synced = await home.collections.sync(compile=True)

    assert [synced[name].status for name in ("team", "some")] == ["error", "error"]
    assert "cannot be in" in synced["team"].errors[0].message
    await home.collections.remove("team", force=True)
    home.paths.collections_file.write_text("collections: {}\n")
    await home.collections.sync(compile=True)
    assert tree(there) == before
    with pytest.raises(CollectionError, match="cannot be in") as refused:
        await home.collections.add("other", str(there))
    assert refused.value.code == "source-generated"


async def test_a_registry_that_is_a_link_stays_one_and_what_it_leads_to_is_written(
    home: Home, text: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "base.md").write_text(text("base"))
    kept = tmp_path / "dotfiles" / "collections.yaml"
    kept.parent.mkdir()
    kept.write_text("# in my repository\ncollections: {}\n")
    home.paths.share.mkdir(parents=True)
    home.paths.collections_file.symlink_to(kept)

    await home.collections.add("team", str(tmp_path / "team"))

    assert home.paths.collections_file.readlink() == kept
    assert kept.read_text().startswith("# in my repository\ncollections:\n  team:\n")
    assert os.listdir(kept.parent) == ["collections.yaml"]  # noqa: PTH208 - nothing is left beside it


def test_an_older_layout_is_moved_once_and_whole(home: Home, text: Callable[..., str]) -> None:
    older = home.paths.profiles / "local"
    write_own(older, text)
    before = tree(older)

    listed = home.collections.list()[-1]

    assert tree(home.paths.own_profiles) == before
    assert [(each.name, each.path) for each in listed.profiles] == [("mine", "mine/profile.md")]
    assert [issue.code for issue in home.collections.warnings()] == ["profile-moved"] * 3
    assert str(home.paths.own_profiles / "mine") in home.collections.warnings()[1].message
    assert os.listdir(older) == ["mine"]  # noqa: PTH208 - the extracted copy
    home.collections.list()
    assert len(home.collections.warnings()) == 3


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_link_of_an_older_layout_leads_where_it_led(
    home: Home, text: Callable[..., str], tmp_path: Path, is_absolute: bool
) -> None:
    write_own(tmp_path / "repository", text)
    older, kept = home.paths.profiles / "local", tmp_path / "repository" / "mine"
    older.mkdir(parents=True)
    (older / "mine").symlink_to(kept if is_absolute else os.path.relpath(kept, older))

    home.collections.list()

    moved = home.paths.own_profiles / "mine"
    assert (moved.is_symlink(), moved.readlink().is_absolute(), moved.samefile(kept)) == (True, is_absolute, True)
    assert not (older / "mine").is_symlink()
    assert [issue.code for issue in home.profiles.list()[0].issues] == ["unsafe-path"]


async def test_a_profile_that_an_older_version_compiled_comes_out_of_its_build(
    home: Home, text: Callable[..., str]
) -> None:
    older = home.paths.profiles / "local"
    build = older / ".builds" / "mine" / "0123"
    write_own(build.parent, text)
    (build.parent / "mine").rename(build)
    (build / "profile.lock").write_text("{}")
    (older / "mine").symlink_to(".builds/mine/0123")
    before = {name: content for name, content in tree(build).items() if name != "profile.lock"}

    built = await home.profiles.compile("local/mine")

    assert tree(home.paths.own_profiles / "mine") == before
    assert (built.path / "agents" / "expert.md").read_text() == "An expert.\n"


def test_what_has_the_same_name_in_both_places_is_kept_twice(home: Home, text: Callable[..., str]) -> None:
    for directory, body in ((home.paths.own_profiles, "New."), (home.paths.profiles / "local", "Old.")):
        (directory / "mine").mkdir(parents=True)
        (directory / "mine" / "profile.md").write_text(text("mine", body=body))

    home.collections.list()

    own = home.paths.own_profiles
    assert [(own / name / "profile.md").read_text() for name in ("mine", "mine-2")] == [
        text("mine", body="New."),
        text("mine", body="Old."),
    ]
    assert home.profiles.get("local/mine").path == own / "mine" / "profile.md"


@pytest.mark.parametrize("point", range(1, 13))
def test_a_move_that_is_killed_loses_nothing(home: Home, text: Callable[..., str], tmp_path: Path, point: int) -> None:
    older, own = home.paths.profiles / "local", home.paths.own_profiles
    write_own(older, text)
    before = tree(older)

    command = [sys.executable, "-c", KILLED, str(home.paths.home), str(point)]
    done = warm_python.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == -9, (done.stdout, done.stderr)
    left = {**{name: entry for name, entry in tree(older).items() if name in before}, **tree(own)}
    assert left.keys() >= before.keys()
    home.collections.list()
    assert tree(own) == before


async def test_a_profile_that_cannot_be_read_is_invalid_and_not_missing(home: Home, text: Callable[..., str]) -> None:
    own = home.paths.own_profiles
    own.mkdir(parents=True)
    (own / "mine.md").write_text(text("mine"))
    build = await home.profiles.compile("local/mine")
    lines = text("mine").splitlines()
    (own / "mine.md").write_text("\n".join([*lines[:7], "tools: [", *lines[7:]]))

    with pytest.raises(ProfileValidationError, match="line 10") as caught:
        await home.profiles.compile("local/mine")

    assert [(issue.code, issue.file) for issue in caught.value.issues] == [("invalid-yaml", own / "mine.md")]
    assert (await home.profiles.status("local/mine")).status == "invalid"
    assert [(each.profile_id, each.valid) for each in home.profiles.list()] == [("local/mine", False)]
    assert build.path.is_dir()


@pytest.mark.parametrize("name", ["My Größe.md", "wide dir/profile.md", os.fsdecode(b"caf\xe9.md")])
async def test_a_file_that_cannot_be_a_profile_is_reported_and_the_others_work(
    home: Home, text: Callable[..., str], name: str
) -> None:
    own = home.paths.own_profiles
    (own / name).parent.mkdir(parents=True)
    (own / name).write_text(text())
    (own / "mine.md").write_text(text("mine"))

    assert (await home.profiles.compile("local/mine")).status == "fresh"

    listed = home.profiles.list()
    assert [each.profile_id for each in listed if each.valid] == ["local/mine"]
    assert all(each.path == own / name for each in listed if not each.valid)
    (issue,) = home.collections.get("local").warnings
    assert issue.message.encode()
    assert issue.code in ("name-invalid", "unreadable")


async def test_a_frozen_compile_says_what_was_written_since_and_extracts_nothing(
    home: Home, text: Callable[..., str]
) -> None:
    own = home.paths.own_profiles
    own.mkdir(parents=True)
    (own / "parent.md").write_text(text("parent"))
    (own / "mine.md").write_text(text("mine", extends="parent"))
    await home.profiles.compile("local/mine")
    (own / "parent.md").write_text(text("parent", body="Other words."))
    lock = json.loads(home.paths.collections_lock.read_text())

    with pytest.raises(Exception, match="parent-changed"):
        await home.profiles.compile("local/mine", frozen=True)

    assert json.loads(home.paths.collections_lock.read_text()) == lock


async def test_a_profile_may_extend_another_of_its_own_name_before_that_was_ever_extracted(
    home: Home, text: Callable[..., str]
) -> None:
    own = home.paths.own_profiles
    own.mkdir(parents=True)
    (own / "core.md").write_text(text("core", extends="core", body=""))

    build = await home.profiles.compile("local/core")

    assert build.instruction() == "Hello."
