"""Packages whose names are loaded when they are first used."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = [
    "amplifier_foundation",
    "amplifier_foundation.mentions",
    "amplifier_foundation.modules",
    "amplifier_foundation.prepared",
    "amplifier_foundation.registry",
    "amplifier_foundation.session",
    "amplifier_foundation.sources",
    "amplifierd",
    "amplifierd.checkpoints",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    module = importlib.import_module(package)

    assert [name for name in module.__all__ if getattr(module, name) is None] == []
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018 - looked up on purpose


def test_importing_a_package_loads_none_of_its_files_and_a_name_or_a_file_is_found_through_it() -> None:
    code = """
import sys
import amplifier_foundation
print([name for name in sys.modules if name.startswith("amplifier_foundation.")])
print(amplifier_foundation.Bundle.__module__, amplifier_foundation.sources.parse_reference.__module__)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.splitlines() == ["[]", "amplifier_foundation.bundle.model amplifier_foundation.sources.reference"]
