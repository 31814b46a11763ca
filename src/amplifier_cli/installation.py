"""This installation: which packages its modules lack, and the command that installs some into it."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_core.packages import type_from_id
from amplifierd.plans.runtime_values import declared_by

_NAME = re.compile(r"[A-Za-z0-9._-]+")
TYPE_TO_SECTION = {"provider": "providers", "tool": "tools", "hook": "hooks"}


def missing_packages(module_id: str) -> list[str]:
    """Return the packages, as requirements, that an installed module declares to need and that are not here."""
    section = TYPE_TO_SECTION.get(str(type_from_id(module_id)), "tools")
    return missing_for(next(MountPlan({section: [{"module": module_id}]}).entries()))


def missing_for(entry: PlanEntry) -> list[str]:
    """Return the same for an entry of a plan; what a module has in its build is not asked for."""
    declared = [str(each) for each in declared_by(entry).get("requires") or ()]
    return [each for each in declared if not _is_here(_NAME.match(each))]


def install_command(packages: list[str]) -> list[str]:
    """Return what installs packages beside us: by pipx or uv where they made this environment, else by pip."""
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return ["pipx", "inject", prefix.name, *packages]
    uv = shutil.which("uv")
    if uv is not None and ((prefix / "uv-receipt.toml").is_file() or find_spec("pip") is None):
        return [uv, "pip", "install", "--python", sys.executable, *packages]
    return [sys.executable, "-m", "pip", "install", *packages]


def install_words(packages: list[str]) -> str:
    """Return the same as a line to type."""
    return shlex.join(install_command(packages))


def _is_here(name: re.Match[str] | None) -> bool:
    try:
        version(name[0] if name else "")
    except PackageNotFoundError:
        return False
    return True
