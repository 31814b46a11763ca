"""What a session's policy means for a command."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_kit.mounting import find_capability
from amplifier_kit.policy import SessionPolicy, planned_rules

_GIT = ".git"
_OWN_VIEWS = tuple(map(Path, ("/proc", "/sys", "/dev")))  # a sandbox has others in their place


@dataclass(frozen=True, slots=True)
class Permissions:
    """What an approved command may do; one that no one was asked about sees no more, and changes nothing."""

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...]
    hidden: tuple[Path, ...]
    has_network: bool
    environment: Mapping[str, str]

    @classmethod
    def of(cls, coordinator: Any, working_dir: Path) -> "Permissions":
        """Return what the session's policy says, else the plan's, else the default one of the working directory."""
        policy = find_capability(coordinator, "session.policy")
        if not isinstance(policy, SessionPolicy):
            policy = SessionPolicy.of(planned_rules(coordinator), working_dir=working_dir)
        # A repository belongs to its commands: what keeps file tools out of `.git` would keep `git commit` out too.
        names = [name for name in policy.write.denied_names if name != _GIT]
        protected = [place for place in policy.write.denied if Path(place).name != _GIT]
        return cls(
            writable=(*_real(_writable(policy.write.allowed)), *repository_of(working_dir)),
            read_only=tuple(_real([*protected, *(working_dir / name for name in names)])),
            hidden=tuple(_real([*policy.read.denied, *(working_dir / name for name in policy.read.denied_names)])),
            has_network=not policy.network.is_empty,
            environment=policy.environment(),
        )


def repository_of(working_dir: Path) -> list[Path]:
    """Return where the repository around a directory keeps itself: its `.git`, and what that refers to."""
    for directory in (working_dir, *working_dir.parents):
        git = directory / _GIT
        if git.is_dir():
            return [git.resolve()]
        if git.is_file():
            return _referred(git)
    return []


def _referred(git: Path) -> list[Path]:
    """Return the directories behind a `.git` file, of a worktree or a submodule; they must know of it in turn."""
    try:
        directory = (git.parent / _text(git).removeprefix("gitdir:").strip()).resolve()
        is_submodule = any(directory.is_relative_to(above / _GIT / "modules") for above in git.resolve().parents)
        if is_submodule and (directory / "HEAD").is_file():
            return [directory]
        if (directory / _text(directory / "gitdir")).resolve() != git.resolve():
            return []
        return [directory, (directory / _text(directory / "commondir")).resolve()]
    except (OSError, ValueError):  # it refers to nothing, or to no repository
        return []


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _writable(groups: Iterable[frozenset[str]]) -> list[str]:
    """Return the places that every group allows."""
    groups = list(groups)
    return [
        place
        for place in frozenset().union(*groups)
        if all(any(Path(place).is_relative_to(other) for other in group) for group in groups)
    ]


def _real(places: Iterable[str | Path]) -> list[Path]:
    """Return where places lead, each once, without those that a sandbox replaces anyway."""
    # What does not exist has nowhere to lead, and most secret places of a policy do not.
    real = {Path(os.path.realpath(place) if os.path.lexists(place) else place) for place in places}
    return sorted(path for path in real if not any(path.is_relative_to(view) for view in _OWN_VIEWS))
