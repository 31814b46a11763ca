"""Opening a home: everything is read once, and nothing is created."""

import dataclasses
from pathlib import Path

import pytest

import amplifierd
from amplifierd import open_home
from amplifierd.exceptions import SettingsError
from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMPLIFIERD_HOME", "AMPLIFIERD_OFFLINE", "AMPLIFIERD_CACHE_DIR", "AMPLIFIERD_CACHE__HTTP_MAX_BYTES"):
        monkeypatch.delenv(name, raising=False)


def test_the_public_names() -> None:
    assert amplifierd.__all__ == [
        *("DaemonModuleSourceResolver", "ExecutionRunner", "Home", "Issue", "Paths", "ProfileId", "Settings"),
        *("create_app", "open_home", "validate_mount_plan"),
    ]
    assert all(getattr(amplifierd, name) for name in amplifierd.__all__)
    assert amplifierd.DaemonModuleSourceResolver is DaemonModuleSourceResolver
    assert not hasattr(amplifierd, "anything_else")


def test_opening_creates_nothing(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    home.collections.list()
    home.collections.profile_ids()

    assert not (tmp_path / "home").exists()


def test_the_home_of_the_environment_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIERD_HOME", str(tmp_path / "one"))
    monkeypatch.setenv("AMPLIFIERD_CACHE__HTTP_MAX_BYTES", "1234")
    home = open_home()
    monkeypatch.setenv("AMPLIFIERD_HOME", str(tmp_path / "two"))
    monkeypatch.setenv("AMPLIFIERD_CACHE__HTTP_MAX_BYTES", "4321")

    assert (home.paths.home, home.settings.cache.http_max_bytes) == (tmp_path / "one", 1234)
    assert home.collections is home.collections
    with pytest.raises(dataclasses.FrozenInstanceError):
        home.paths = open_home().paths  # type: ignore[misc]


def test_several_homes_are_strangers(tmp_path: Path) -> None:
    one, two = open_home(tmp_path / "one"), open_home(tmp_path / "two")

    assert one.collections is not two.collections
    assert one.sources.cache_dir == tmp_path / "one" / "cache"
    assert two.sources.cache_dir == tmp_path / "two" / "cache"


def test_an_argument_outranks_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "daemon.yaml").write_text("offline: true\ncompile: {timeout_seconds: 1}\n")

    assert open_home(tmp_path).settings.offline is True
    assert open_home(tmp_path, offline=False).settings.offline is False
    monkeypatch.setenv("AMPLIFIERD_OFFLINE", "0")
    assert open_home(tmp_path).settings.offline is False
    assert open_home(tmp_path, offline=True).settings.offline is True
    overrides = {"compile": {"timeout_seconds": 3}}
    assert open_home(tmp_path, overrides=overrides).settings.compile.timeout_seconds == 3


def test_another_settings_file_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("compile: {timeout_seconds: 7}\n")

    assert open_home(tmp_path / "home", config_file=file).settings.compile.timeout_seconds == 7


def test_a_broken_settings_file_stops_the_opening(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "daemon.yaml").write_text("offline: perhaps\n")

    with pytest.raises(SettingsError, match="offline"):
        open_home(tmp_path)


def test_a_home_has_one_of_each_service(tmp_path: Path) -> None:
    home = open_home(tmp_path, shipped_collection=tmp_path / "none")

    assert home.profiles is home.profiles
    assert home.plans is home.plans
    assert home.profiles.list() == ()


def test_a_home_has_a_resolver_of_its_compiled_modules(tmp_path: Path) -> None:
    assert isinstance(open_home(tmp_path).resolver(), DaemonModuleSourceResolver)
