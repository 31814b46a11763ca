"""A module as a person names it: installed, or in a folder."""

from __future__ import annotations

from pathlib import Path

from amplifier_core.packages import bare_name, find_package, module_id_of
from amplifierd.builds.module_facts import ModuleFacts, installed_facts, read_facts

from .failures import UsageError
from .suggestions import pick


def find_facts(typed: str) -> ModuleFacts:
    """Return the facts of an installed module, or of the one in a folder.

    Raises:
        UsageError: there is neither.
    """
    if "/" in typed or typed.startswith("."):
        package = find_package(Path(typed)) if Path(typed).is_dir() else None
        if package is None:
            raise UsageError(f"{typed} does not contain a module", hint="name the folder with its pyproject.toml")
        return read_facts(module_id_of(Path(typed)), package, None)
    known = {facts.module_id: facts for facts in installed_facts()}
    see = "amplifier module list shows them; ./NAME is a folder"
    return known[pick(typed, known, "module", key=bare_name, see=see)]
