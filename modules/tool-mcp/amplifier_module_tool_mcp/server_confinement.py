"""What a server that runs as a child process may see and do."""

import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.confinement import Confinement
from amplifier_kit.sandbox.enclosure import Sandbox
from amplifier_kit.sandbox.permissions import Permissions
from amplifier_kit.tools.paths import resolve_roots

from .entries import Program, ServerSettings
from .start_error import StartError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Confined:
    """How a server is run; without a sandbox the confinement only says where."""

    confinement: Confinement
    sandbox: Sandbox | None
    environment: Mapping[str, str]


def confine(program: Program, cwd: Path, settings: ServerSettings) -> Confined:
    """Return what the entry of a server says about its sandbox; raises `StartError` when that cannot be had.

    What the session's policy hides stays hidden, and what it protects from writing stays so, whatever the entry says.
    """
    permissions = Permissions.of(settings.module.working_dir.coordinator, cwd)
    environment = program.environment(permissions.environment)
    if names := ", ".join(program.missed(permissions.withheld)):
        logger.warning("server %s is not given %s: add it to policy.environment.pass", settings.name, names)
    sandbox = None if program.sandbox == "off" else find_sandbox()
    if sandbox is None:
        if program.sandbox == "required":
            raise StartError("a sandbox is required, and none works on this machine; install the extra `sandbox`")
        if program.sandbox == "auto":
            logger.warning("server %s runs without a sandbox: none works on this machine", settings.name)
        return Confined(Confinement(cwd), None, environment)
    path = environment.get("PATH", os.defpath)
    if shutil.which(program.command, path=path) is None:
        raise StartError(f"the command {program.command!r} cannot be run: it is not found")
    return Confined(
        Confinement(
            working_dir=cwd.resolve(),
            writable=_places(program.write, cwd),
            readable=_places(program.read or (), cwd),
            read_only=permissions.read_only,
            hidden=permissions.hidden,
            shown=permissions.shown,
            kept_folders=permissions.kept_folders,
            kept_files=permissions.kept_files,
            private=() if program.read is None else _places(["~"], cwd),
            has_network=program.has_network and permissions.has_network,
        ),
        sandbox,
        environment,
    )


def _places(entries: Iterable[str], cwd: Path) -> tuple[Path, ...]:
    return tuple(resolve_roots(entries, cwd))
