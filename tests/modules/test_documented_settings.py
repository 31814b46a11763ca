"""What a module's README says can be configured is what the module reads, and the other way round."""

import re
from pathlib import Path

import pytest
from config_keys import config_keys_of

MODULES = Path(__file__).parents[2] / "modules"


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
async def test_the_readme_lists_every_key_that_is_read_and_no_other(module_id: str, tmp_path: Path) -> None:
    assert documented_keys(module_id) == await config_keys_of(module_id, tmp_path)
