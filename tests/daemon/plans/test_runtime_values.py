"""Modules say which values of a running session they want; nobody has to know them by their ids."""

import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.mount_plan import MountPlan
from amplifierd.plans import runtime_values
from amplifierd.plans.runtime_values import RuntimePlaces, RuntimeValues
from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver

MODULES = Path(__file__).parents[3] / "modules"
_WANTED = tomllib.loads(Path(runtime_values.__file__).with_name("undeclared.toml").read_text())
UNDECLARED = [name for name, wanted in _WANTED.items() if wanted.keys() & {"defaults", "always"}]

PLACES = RuntimePlaces(
    working_dir=Path("/work"),
    session_dir=Path("/state/sessions/s1"),
    sessions_dir=Path("/state/sessions"),
    approvals_file=Path("/state/approvals.jsonl"),
)


def module(folder: Path, module_id: str, declaration: str | None) -> Path:
    """Write a module that must not be imported."""
    package = folder / f"amplifier_module_{module_id.replace('-', '_')}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    if declaration is not None:
        (package / "runtime.toml").write_text(declaration)
    return folder


def fill_in(module_id: str, folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    resolver = DaemonModuleSourceResolver(folder.parent, module_roots=[folder.parent])
    plan = {"hooks": [{"module": module_id, "source": str(folder), "config": config}]}
    (entry,) = MountPlan(plan).entries()
    return RuntimeValues(PLACES, resolver).fill_in(entry, entry.config)


def test_a_module_of_others_gets_what_it_declares_without_being_imported(tmp_path: Path) -> None:
    declaration = """
    [defaults]
    cache = "<session_dir>/cache"
    roots = ["<working_dir>", "/usr/share"]
    log = { file = "<sessions_dir>/{session_id}.log", level = 3 }
    [always]
    audit = { file = "<approvals_file>" }
    """
    folder = module(tmp_path / "hooks-foreign", "hooks-foreign", declaration)

    filled = fill_in(
        "hooks-foreign", folder, {"cache": "own", "log": {"level": 1}, "audit": {"file": "own", "on": True}}
    )

    assert filled == {
        "cache": "own",
        "roots": ["/work", "/usr/share"],
        "log": {"file": "/state/sessions/{session_id}.log", "level": 1},
        "audit": {"file": "/state/approvals.jsonl", "on": True},
    }


def test_a_module_that_declares_something_is_not_taken_for_its_namesake(tmp_path: Path) -> None:
    declared = module(tmp_path / "hooks-logging", "hooks-logging", "[defaults]\nx = 1\n")

    assert fill_in("hooks-logging", declared, {}) == {"x": 1}


@pytest.mark.parametrize("module_id", UNDECLARED)
def test_a_namesake_that_declares_nothing_gets_what_the_ecosystem_means(tmp_path: Path, module_id: str) -> None:
    ours = MODULES / module_id
    theirs = module(tmp_path / module_id, module_id, None)

    assert fill_in(module_id, theirs, {}) == fill_in(module_id, ours, {}) != {}


@pytest.mark.parametrize("declaration", ["[defaults", "[defaults]\nx = '<no_such_place>'\n"])
def test_a_declaration_that_cannot_be_followed_is_told(
    tmp_path: Path, declaration: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = module(tmp_path / "hooks-foreign", "hooks-foreign", declaration)

    fill_in("hooks-foreign", folder, {})

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
