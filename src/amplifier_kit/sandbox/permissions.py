"""What a session's policy means for a command."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from amplifier_kit.mounting import find_capability
from amplifier_kit.policy import NetworkAccess, SessionPolicy, planned_rules
from amplifier_kit.redaction import mask_text
from amplifier_system.policy.environment_access import has_password

_GIT = ".git"
_REPOSITORIES = (_GIT, ".hg")
_OWN_VIEWS = tuple(map(Path, ("/proc", "/sys", "/dev")))  # a sandbox has others in their place


@dataclass(frozen=True, slots=True)
class Permissions:
    """What an approved command may do; one that no one was asked about sees no more, and changes nothing."""

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...]
    hidden: tuple[Path, ...]
    shown: tuple[Path, ...]
    kept_folders: tuple[Path, ...]
    kept_files: tuple[Path, ...]
    network: NetworkAccess
    environment: Mapping[str, str]
    withheld: tuple[str, ...]
    """The names of the variables that commands are not given."""

    @property
    def has_network(self) -> bool:
        """True unless nothing may be reached at all."""
        return not self.network.is_empty

    @classmethod
    def of(cls, coordinator: Any, working_dir: Path) -> "Permissions":
        """Return what the session's policy says, else the plan's, else the default one of the working directory."""
        policy = find_capability(coordinator, "session.policy")
        if not isinstance(policy, SessionPolicy):
            policy = SessionPolicy.of(planned_rules(coordinator), working_dir=working_dir)
        # A repository belongs to its commands: what keeps file tools out of `.git` would keep `git commit` out too.
        names = [name for name in policy.write.denied_names if name not in _REPOSITORIES]
        protected = [place for place in policy.write.denied if Path(place).name not in _REPOSITORIES]
        environment = policy.variables.divided(is_secret=_is_secret)
        directories = repository_of(working_dir)
        repositories = [*directories, *(inner for each in directories for inner in _submodules(each))]
        return cls(
            # What is a mount of its own cannot be moved away to put something else in its place.
            writable=(*_real(_writable(policy.write.allowed)), *directories, *(each / "info" for each in directories)),
            read_only=tuple(_real([*protected, *(working_dir / name for name in names)])),
            hidden=tuple(_real([*policy.read.denied, *(working_dir / name for name in policy.read.denied_names)])),
            shown=tuple(_real(policy.read.opened)),
            kept_folders=tuple(each / "hooks" for each in repositories),
            kept_files=(*(each / "info/attributes" for each in repositories), *_git_file(working_dir)),
            network=policy.network,
            environment=environment.variables,
            withheld=environment.withheld,
        )


@lru_cache(maxsize=1024)
def _is_secret(value: str) -> bool:
    return has_password(value) or mask_text(value, ("secrets",)) != value


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


def _git_file(working_dir: Path) -> list[Path]:
    """Return the file that leads to the repository, of a worktree or a submodule."""
    return [git for git in [working_dir / _GIT] if git.is_file()]


def _submodules(directory: Path, depth: int = 4) -> Iterator[Path]:
    """Yield the repositories of submodules that a repository keeps, and theirs; some lie in folders."""
    try:
        found = [Path(entry.path) for entry in os.scandir(directory / "modules") if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in found:
        if (path / "HEAD").is_file():
            yield path
            yield from _submodules(path, depth - 1) if depth else ()


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
