"""`amplifier import`: what another application keeps in `~/.amplifier` is brought over, and stays as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Say = Callable[..., Any]

SETTINGS = """\
bundle:
  active: helper
  added:
    team: git+https://example.org/team@v1
profile: {active: unheard-of}
config:
  providers:
  - module: provider-anthropic
    config: {default_model: claude-sonnet-5, api_key: canary-of-a-key}
show_thinking: false
max_cost: much
sources: {tool-web: git+https://example.org/tool-web}
"""
REGISTRY = {
    "version": 1,
    "bundles": {
        "helper": {"uri": "git+https://user:secret@example.org/helper@main", "name": "helper", "is_root": True},
        "part": {"uri": "git+https://example.org/part@main", "name": "part", "included_by": ["helper"]},
    },
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """What another application left."""
    folder = tmp_path / "theirs"
    (folder / "bundles/mine").mkdir(parents=True)
    (folder / "bundles/mine/bundle.md").write_text("---\nbundle: {name: mine, version: 1.0.0}\n---\n")
    (folder / "settings.yaml").write_text(SETTINGS)
    (folder / "registry.json").write_text(json.dumps(REGISTRY))
    return folder


def _all(folder: Path) -> dict[str, Any]:
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in sorted(folder.rglob("*"))
    }


def test_settings_and_bundles_are_brought_over_and_the_original_stays(say: Say, amplifier: Any, theirs: Path) -> None:
    before = _all(theirs)

    said = say("import", str(theirs), "--json")

    rows = {(row["kind"], row["name"]): row for row in json.loads(said.out)["imported"]}
    assert {key: row["result"] for key, row in rows.items() if row["result"] == "new"} == {
        ("setting", "bundle"): "new",
        ("setting", "show_thinking"): "new",
        ("bundle", "helper"): "new",
        ("bundle", "mine"): "new",
        ("bundle", "team"): "new",
    }
    assert rows["bundle", "mine"]["value"] == (theirs / "bundles/mine/bundle.md").as_uri()
    assert "no profile" in rows["setting", "profile"]["result"]
    assert "amplifier init" in rows["setting", "model"]["result"]
    assert "much" in rows["setting", "max_cost"]["result"]
    assert json.loads(said.out)["left"] == ["sources"]
    assert yaml.safe_load((amplifier.home / "config/settings.yaml").read_text()) == {
        "bundle": "helper",
        "show_thinking": False,
    }
    assert _all(theirs) == before


def test_no_secret_is_brought_over_or_shown(say: Say, amplifier: Any, theirs: Path) -> None:
    said = say("import", str(theirs))

    stored = b"".join(content for _, content in _all(amplifier.home).values())
    assert not [canary for canary in ("canary", "user:secret") if canary in said.out + said.err]
    assert b"canary" not in stored


def test_what_is_set_here_is_kept_and_a_second_import_changes_nothing(say: Say, amplifier: Any, theirs: Path) -> None:
    say("config", "set", "show_thinking", "true")
    say("import", str(theirs))
    file = amplifier.home / "config/settings.yaml"
    before = file.read_bytes()

    said = say("import", str(theirs), "--json")

    results = {row["name"]: row["result"] for row in json.loads(said.out)["imported"] if row["kind"] == "setting"}
    assert (results["show_thinking"], results["bundle"]) == ("kept", "is the same")
    assert file.read_bytes() == before


def test_a_dry_run_changes_nothing(say: Say, amplifier: Any, theirs: Path) -> None:
    said = say("import", str(theirs), "--dry-run")

    assert "helper" in said.out
    assert said.out.endswith("nothing was changed\n")
    assert not (amplifier.home / "config/settings.yaml").exists()
    assert not (amplifier.home / "state/registry.json").exists()


def test_a_directory_that_is_missing_or_damaged_is_named(say: Say, theirs: Path, tmp_path: Path) -> None:
    missing = say("import", str(tmp_path / "nowhere"))
    (theirs / "registry.json").write_text("{")
    damaged = say("import", str(theirs))

    assert (missing.code, damaged.code) == (2, 2)
    assert "nowhere is not a directory" in missing.err
    assert "registry.json cannot be read" in damaged.err
    assert "nothing was imported" in damaged.err
