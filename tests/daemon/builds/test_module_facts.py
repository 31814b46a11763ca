"""What can be said about a module without importing it."""

import logging
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.exceptions import ModuleValidationError
from amplifierd.identifiers import ProfileId
from amplifierd.profiles.builds.installed_modules import read_facts
from amplifierd.server.module_catalogue import ModuleCatalogue


@pytest.mark.parametrize(
    ("text", "module_type"),
    [
        ('"""tool-x: does it.\n\nIn detail."""\n__amplifier_module_type__ = "hook"\n', "hook"),
        ('"""tool-x: does it."""\n__amplifier_module_type__: str = "hook"\n', "hook"),
        ('"""Does it."""\n', "tool"),
    ],
)
def test_a_module_is_described_by_its_package(tmp_path: Path, text: str, module_type: str) -> None:
    (tmp_path / "__init__.py").write_text(text)

    facts = read_facts("tool-x", tmp_path, "1.0")

    assert (facts.module_type, facts.version, facts.path) == (module_type, "1.0", str(tmp_path))
    assert facts.summary.lower() == "does it."


def test_what_cannot_be_read_is_described_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("def (:")

    assert read_facts("loop-x", tmp_path, None).module_type == "orchestrator"


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('__amplifier_module_type__ = "wizard"\n')

    with pytest.raises(ModuleValidationError, match="unknown type 'wizard'"):
        read_facts("tool-x", tmp_path, None)


async def test_a_module_of_an_unknown_type_is_not_listed(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    sources = {name: bench.write_module(name) for name in ("tool-fine", "tool-odd")}
    code = Path(sources["tool-odd"]) / "amplifier_module_tool_odd/__init__.py"
    code.write_text(f'{code.read_text()}__amplifier_module_type__ = "wizard"\n')
    tools = [{"module": name, "source": source} for name, source in sources.items()]
    bench.write_profile(providers=[{"module": "provider-mock"}], tools=tools)
    await bench.home.profiles.compile("local/mine")

    catalogue = ModuleCatalogue(bench.home.collections, bench.home.profiles, bench.home.paths.share)
    found = catalogue.list(profile=ProfileId.parse("local/mine"), module_type="tool")

    assert [module.id for module in found] == ["tool-fine"]
    assert [record.levelno for record in caplog.records if "wizard" in record.message] == [logging.ERROR]
