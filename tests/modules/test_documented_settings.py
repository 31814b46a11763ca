"""What a module's README says can be configured is what the module reads, and the other way round."""

import inspect
import logging
import re
from importlib import import_module
from pathlib import Path

import pytest

from amplifier_core.testing import MockCoordinator

MODULES = Path(__file__).parents[2] / "modules"
UNKNOWN = "no_such_key"


def documented_keys(module_id: str) -> set[str]:
    """Return the keys in the tables `| Key | …` of a module's README, with those of a module that it refers to."""
    readme = (MODULES / module_id / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Configuration\n")[2].partition("\n## ")[0]
    tables = re.findall(r"^\| Key \|.*\n\|.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    keys = {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    aliases = {key for row in rows for key in re.findall(r"also read as `(\w+)`", row)}
    others = re.findall(r"Every key of \[(\S+)\]", section)
    return keys.union(aliases, *map(documented_keys, others))


@pytest.mark.parametrize("module_id", sorted(path.name for path in MODULES.iterdir() if path.is_dir()))
async def test_the_readme_lists_every_key_that_is_read_and_no_other(
    module_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = MockCoordinator()
    coordinator.register_capability("session.working_dir", str(tmp_path))
    module = import_module(f"amplifier_module_{module_id.replace('-', '_')}")
    with caplog.at_level(logging.WARNING):
        cleanup = await module.mount(coordinator, {UNKNOWN: 1})
    if cleanup is not None and inspect.isawaitable(ended := cleanup()):
        await ended

    read = {
        key for record in caplog.records if UNKNOWN in getattr(record, "unknown_keys", ()) for key in record.known_keys
    }
    assert documented_keys(module_id) == read
