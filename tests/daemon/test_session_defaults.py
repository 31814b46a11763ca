"""A session that names neither profile nor directory gets ones that work."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends import fail

from amplifier_core.testing import MockCoordinator
from amplifierd import open_home
from amplifierd.exceptions import SettingsError
from amplifierd.home import Home
from amplifierd.session_defaults import default_profile, default_working_dir

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A new home on a machine without a keyring."""
    before = keyring.get_keyring()
    keyring.set_keyring(fail.Keyring())
    yield open_home(tmp_path / "home", offline=True)
    keyring.set_keyring(before)


async def chosen(home: Home, environment: dict[str, str] | None = None) -> str:
    return await default_profile(home.paths, home.settings, home.profiles, home.keys, environment=environment or {})


async def test_without_any_key_the_profile_needs_none(home: Home) -> None:
    assert await chosen(home, {"OPENAI_API_KEY": " "}) == "foundation/offline"


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"])
async def test_a_key_in_the_environment_of_one_provider_is_enough(home: Home, variable: str) -> None:
    assert await chosen(home, {variable: "sk-1"}) == "foundation/base"


async def test_a_stored_key_is_enough(home: Home) -> None:
    home.keys.set("provider-openai", "sk-0123456789")
    assert await chosen(home) == "foundation/base"
    home.keys.remove("provider-openai")
    home.keys.set("provider-acme", "sk-0123456789")  # not one of the profile's
    assert await chosen(home) == "foundation/offline"


def overlay(home: Home, providers: str) -> None:
    file = home.paths.overlay_file("foundation/base")
    file.parent.mkdir(parents=True)
    file.write_text(f"---\nproviders:\n{providers}---\n")


async def test_a_key_in_the_profile_or_its_overlay_is_enough_if_it_is_one(home: Home) -> None:
    overlay(home, "- module: provider-openai\n  config: {api_key: '${MY_KEY}'}\n")
    assert (await chosen(home), await chosen(home, {"MY_KEY": "sk-1"})) == ("foundation/offline", "foundation/base")


async def test_a_provider_that_declares_nothing_follows_the_custom_and_is_not_imported(home: Home) -> None:
    overlay(home, "- module: provider-acme-cloud\n")
    assert await chosen(home, {"ACME_CLOUD_API_KEY": "sk-1"}) == "foundation/base"


async def test_the_active_profile_comes_before_the_setting_and_the_setting_before_the_keys(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", offline=True, overrides={"default_profile": "foundation/coding"})
    assert await chosen(home) == "foundation/coding"
    home.paths.state.mkdir(parents=True)
    home.paths.active_profile_file.write_text("local/mine\n")
    assert await chosen(home) == "local/mine"
    home.paths.active_profile_file.write_text("mine")
    with pytest.raises(SettingsError, match="active_profile"):
        await chosen(home)
    with pytest.raises(SettingsError, match="default_profile"):
        open_home(tmp_path / "home", overrides={"default_profile": "coding"})


def test_the_working_directory_is_made_on_first_use(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", overrides={"working_dir": str(tmp_path / "work/here")})
    assert not (tmp_path / "work").exists()
    assert default_working_dir(home.settings) == tmp_path / "work/here"
    assert (tmp_path / "work/here").is_dir()


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
async def test_a_provider_declares_the_variables_that_it_says_it_reads(vendor: str) -> None:
    package = f"amplifier_module_provider_{vendor}"
    declared = tomllib.loads((ROOT / f"modules/provider-{vendor}/{package}/runtime.toml").read_text())
    module: Any = __import__(package)
    coordinator = MockCoordinator()
    await module.mount(coordinator, {"api_key": "sk-1"})
    (provider,) = coordinator.get("providers").values()
    assert declared["credentials"]["environment"] == provider.get_info().credential_env_vars
