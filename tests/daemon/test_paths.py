"""Where a home's files lie, and how its parts are moved."""

import dataclasses
from pathlib import Path

import pytest

from amplifierd import Paths, ProfileId
from amplifierd.exceptions import SettingsError


def test_everything_lies_below_one_home(tmp_path: Path) -> None:
    paths = Paths.from_environment(environ={"AMPLIFIERD_HOME": str(tmp_path)})

    assert {
        name: getattr(paths, name).relative_to(tmp_path).as_posix()
        for name in (
            *("config", "settings_file", "secrets_file", "token_file", "certs", "overlays"),
            *("share", "collections_file", "collections_lock", "profiles"),
            *(
                "cache",
                "locks",
                "state",
                "index_file",
                "sessions",
                "bundles_file",
                "active_profile_file",
                "run",
                "logs",
            ),
        )
    } == {
        "config": "config",
        "settings_file": "config/daemon.yaml",
        "secrets_file": "config/secrets.yaml",
        "token_file": "config/token",
        "certs": "config/certs",
        "overlays": "config/overlays",
        "share": "share",
        "collections_file": "share/collections.yaml",
        "collections_lock": "share/collections.lock",
        "profiles": "share/profiles",
        "cache": "cache",
        "locks": "cache/locks",
        "state": "state",
        "index_file": "state/index.db",
        "sessions": "state/sessions",
        "bundles_file": "state/registry.json",
        "active_profile_file": "state/active_profile",
        "run": "state/run",
        "logs": "state/logs/amplifierd",
    }
    assert list(tmp_path.iterdir()) == []


def test_the_default_home_is_in_the_users_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert Paths.from_environment(environ={}).home == tmp_path / ".amplifierd"
    assert Paths.from_environment(environ={"AMPLIFIERD_HOME": ""}).home == tmp_path / ".amplifierd"


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("AMPLIFIERD_CONFIG_DIR", "config"),
        ("AMPLIFIERD_SHARE_DIR", "share"),
        ("AMPLIFIERD_CACHE_DIR", "cache"),
        ("AMPLIFIERD_STATE_DIR", "state"),
        ("AMPLIFIERD_LOG_DIR", "logs"),
    ],
)
def test_one_variable_moves_one_subtree(tmp_path: Path, variable: str, name: str) -> None:
    usual = Paths.from_environment(tmp_path / "home", environ={})

    moved = Paths.from_environment(tmp_path / "home", environ={variable: str(tmp_path / "elsewhere")})

    changed = {
        field.name for field in dataclasses.fields(Paths) if getattr(moved, field.name) != getattr(usual, field.name)
    }
    assert getattr(moved, name) == tmp_path / "elsewhere"
    assert changed == ({"state", "logs"} if name == "state" else {name})


def test_an_argument_outranks_the_variable(tmp_path: Path) -> None:
    assert Paths.from_environment(tmp_path, environ={"AMPLIFIERD_HOME": "/elsewhere"}).home == tmp_path


def test_relative_and_home_relative_paths_are_frozen_as_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)

    paths = Paths.from_environment(environ={"AMPLIFIERD_HOME": "sub/../here", "AMPLIFIERD_CACHE_DIR": "~/cache"})
    monkeypatch.chdir("/")

    assert (paths.home, paths.cache) == (tmp_path / "here", tmp_path / "user" / "cache")
    with pytest.raises(dataclasses.FrozenInstanceError):
        paths.home = tmp_path  # type: ignore[misc]


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_place_of_a_directory_is_an_error_that_names_it(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(SettingsError, match=f"AMPLIFIERD_CACHE_DIR: {file} is not a directory"):
        Paths.from_environment(tmp_path, environ={"AMPLIFIERD_CACHE_DIR": str(file / below)})


@pytest.mark.parametrize(
    "variables",
    [
        {"CONFIG_DIR": "both", "SHARE_DIR": "both"},
        {"SHARE_DIR": "home/config/profiles"},
        {"CONFIG_DIR": "home/share/profiles/mine"},
        {"SHARE_DIR": "link"},
    ],
    ids=str,
)
def test_profiles_are_never_generated_where_people_write_theirs(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home" / "config")
    environ = {f"AMPLIFIERD_{name}": str(tmp_path / path) for name, path in variables.items()}

    with pytest.raises(SettingsError, match="profiles would be generated in"):
        Paths.from_environment(tmp_path / "home", environ)


def test_a_profile_has_a_directory_a_text_and_an_overlay(tmp_path: Path) -> None:
    paths = Paths.from_environment(tmp_path, environ={})

    assert paths.profile_dir("team/base") == tmp_path / "share/profiles/team/base"
    assert paths.profile_file(ProfileId("team", "base")) == tmp_path / "share/profiles/team/base/profile.md"
    assert paths.overlay_file("team/base") == tmp_path / "config/overlays/team/base.md"


@pytest.mark.parametrize("hostile", ["../x", "team/../x", "team", "team/", "/base", "team/a/b", "Team/base"])
def test_only_ids_of_profiles_become_paths(tmp_path: Path, hostile: str) -> None:
    paths = Paths.from_environment(tmp_path, environ={})

    for path_of in (paths.profile_dir, paths.profile_file, paths.overlay_file):
        with pytest.raises(ValueError, match="Invalid profile_id format"):
            path_of(hostile)
