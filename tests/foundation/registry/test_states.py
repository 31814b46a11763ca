"""Names, states and the file that keeps them."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.registry import BundleRegistry, BundleState, UpdateInfo

FULL = BundleState(
    uri="git+https://h/r@main",
    name="n",
    version="1.2",
    loaded_at=datetime(2025, 1, 2, tzinfo=UTC),
    checked_at=datetime(2025, 1, 3, tzinfo=UTC),
    local_path="/p",
    includes=["a"],
    included_by=["b"],
    is_root=False,
    root_name="r",
    explicitly_requested=True,
    app_bundle=True,
)


def test_a_state_prints_what_it_always_has_and_relations_only_if_there_are_any() -> None:
    assert BundleState("u", "n").to_dict() == {
        "uri": "u",
        "name": "n",
        "version": None,
        "loaded_at": None,
        "checked_at": None,
        "local_path": None,
        "is_root": True,
        "explicitly_requested": False,
        "app_bundle": False,
    }
    assert FULL.to_dict()["loaded_at"] == "2025-01-02T00:00:00+00:00"
    assert {"includes", "included_by", "root_name"} <= FULL.to_dict().keys()


@pytest.mark.parametrize("state", [FULL, BundleState("u", "n")], ids=["full", "bare"])
def test_a_state_survives_printing(state: BundleState) -> None:
    assert BundleState.from_dict("n", state.to_dict()) == state


def test_a_state_needs_its_source_and_nothing_else() -> None:
    assert BundleState.from_dict("n", {"uri": "u"}) == BundleState("u", "n")
    with pytest.raises(KeyError):
        BundleState.from_dict("n", {})


def test_an_update_is_named_with_both_versions() -> None:
    info = UpdateInfo("n", None, "2", "u")

    assert (info.name, info.current_version, info.available_version, info.uri) == ("n", None, "2", "u")


def test_names_can_be_registered_found_and_listed(registry: BundleRegistry, home: Path) -> None:
    registry.register({"b": "uri-b", "a": "uri-a"})
    registry.register("c", "uri-c")

    assert registry.list_registered() == ["a", "b", "c"]
    assert (registry.find("a"), registry.find("none")) == ("uri-a", None)
    assert registry.home == home
    assert not home.exists()


def test_registering_again_replaces_the_source_and_keeps_the_state(registry: BundleRegistry) -> None:
    registry.register({"a": "old"})
    state = registry.get_state("a")
    assert state is not None
    state.version = "3"

    registry.register({"a": "new"})

    assert registry.get_state("a") is state
    assert (state.uri, state.version) == ("new", "3")


def test_unregistering_forgets_relations_too(registry: BundleRegistry) -> None:
    registry.register({"a": "a", "b": "b", "c": "c"})
    states = registry.get_state()
    states["a"].includes, states["c"].included_by = ["b", "c"], ["b"]

    assert registry.unregister("b")
    assert not registry.unregister("b")

    assert (states["a"].includes, states["c"].included_by) == (["c"], [])
    assert registry.get_state("b") is None


def test_the_states_given_out_are_a_copy_of_the_list(registry: BundleRegistry) -> None:
    registry.register({"a": "a"})
    registry.get_state().clear()

    assert registry.list_registered() == ["a"]


def test_what_is_saved_is_there_again(registry: BundleRegistry, home: Path) -> None:
    registry.register({"a": "uri-a"})
    registry.save()

    assert BundleRegistry(home).find("a") == "uri-a"
    saved = json.loads((home / "registry.json").read_text(encoding="utf-8"))
    assert saved == {"version": 1, "bundles": {"a": BundleState("uri-a", "a").to_dict()}}
    assert [path.name for path in home.iterdir()] == ["registry.json"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"bundles": {"a": {}}}', '{"version": 99, "bundles": {}}', '{"bundles": {"a": 5}}', "\x00"]
)
def test_an_unusable_file_is_reported_and_kept_aside(home: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    home.mkdir()
    (home / "registry.json").write_text(text, encoding="utf-8")

    with caplog.at_level(logging.WARNING):
        registry = BundleRegistry(home)
    registry.save()

    assert registry.list_registered() == []
    assert "registry.json" in caplog.text
    assert (home / "registry.json.backup").read_text(encoding="utf-8") == text


def test_paths_that_vanished_are_forgotten_and_that_is_saved(home: Path, tmp_path: Path) -> None:
    states: dict[str, Any] = {
        "gone": BundleState("u", "gone", local_path=str(tmp_path / "gone")).to_dict(),
        "here": BundleState("u", "here", local_path=str(tmp_path)).to_dict(),
    }
    home.mkdir()
    (home / "registry.json").write_text(json.dumps({"version": 1, "bundles": states}), encoding="utf-8")

    registry = BundleRegistry(home)

    paths = {name: state.local_path for name, state in registry.get_state().items()}
    assert paths == {"gone": None, "here": str(tmp_path)}
    saved = json.loads((home / "registry.json").read_text(encoding="utf-8"))["bundles"]
    assert saved["gone"]["local_path"] is None


def test_the_default_home_is_the_one_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "elsewhere"))

    assert BundleRegistry().home == (tmp_path / "elsewhere").resolve()


async def test_checking_for_updates_notes_the_time_and_finds_nothing(registry: BundleRegistry) -> None:
    registry.register({"a": "a", "b": "b"})

    assert await registry.check_update("a") is None
    states = registry.get_state()
    assert (states["a"].checked_at is None, states["b"].checked_at is None) == (False, True)
    assert await registry.check_update() == []
    assert states["b"].checked_at is not None
    assert await registry.check_update("unknown") is None


def test_the_file_is_indented_for_people_to_read(home: Path) -> None:
    registry = BundleRegistry(home)
    registry.register({"a": "/somewhere"})

    registry.save()

    text = (home / "registry.json").read_text(encoding="utf-8")
    assert text.rstrip("\n") == json.dumps(json.loads(text), indent=2)
