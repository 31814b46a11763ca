"""Where a tool may look and write: paths as a model gives them, and the lists of what is allowed and denied."""

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amplifier_kit.config import make_do
from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.mounting import working_dir
from amplifier_kit.types import Coordinator

from .input import ToolFailure

Verdict = Literal["allowed", "denied", "outside"]

NOTHING: tuple[str, ...] = ()
EVERYTHING = ("/",)

_UNEXPANDED = re.compile(r"\$\{.+\}")


@dataclass(frozen=True, slots=True)
class WorkingDir:
    """The directory that relative paths start from: as configured, else the session's, else the process's."""

    configured: str | None
    coordinator: Coordinator

    def path(self) -> Path:
        base = expand_home(self.configured) if self.configured else working_dir(self.coordinator)
        return base.absolute()

    def join(self, text: str | Path) -> Path:
        """Return an absolute path; symbolic links and `..` stay as they are."""
        return self.path() / expand_home(text)


@dataclass(frozen=True, slots=True)
class PathRules:
    """What may be touched, for resolved paths: denied first, then single files, then everything below a root.

    A path is below a root when it has the root's components, or when one of its parents is that very directory, by
    whatever name. `allowed` None stands for everything.
    """

    allowed: Sequence[Path] | None
    denied: Sequence[Path] = ()
    files: Sequence[Path] = ()
    ignores_case: bool = sys.platform == "darwin"  # names that differ in case only may be the same there

    def verdict(self, path: Path) -> Verdict:
        if self.denied and (self._has_denied_name(path) or _is_same_place(path, self.denied)):
            return "denied"
        if self.allowed is None or path in self.files or any(path.is_relative_to(root) for root in self.allowed):
            return "allowed"
        directory = path if path.is_dir() else path.parent
        return "allowed" if _is_same_place(directory, self.allowed) else "outside"

    def _has_denied_name(self, path: Path) -> bool:
        if any(path.is_relative_to(root) for root in self.denied):
            return True
        return self.ignores_case and any(_folded(path).is_relative_to(_folded(root)) for root in self.denied)


def shown(path: Path | str) -> str:
    """Return a path as text that can be stored and sent, even if its name is not valid text."""
    return os.fsencode(path).decode("utf-8", "replace")


def expand_home(text: str | Path) -> Path:
    """Return the path with a leading `~` replaced; an unknown user stays as written."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def resolve(path: Path) -> Path:
    """Return where a path really leads: no symbolic link, no `..`; what does not exist yet is kept as it is."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise ToolFailure("a path cannot contain null characters or lone surrogates", "invalid_input") from None


def resolve_roots(entries: Iterable[str | Path], base: Path) -> list[Path]:
    """Return where the entries of a list lead; relative ones start from `base`."""
    return [resolve(base / expand_home(entry)) for entry in entries]


def read_path_list(
    config: LenientConfig, key: str, default: Sequence[str] | None, *, when_unusable: Sequence[str]
) -> Sequence[str] | None:
    """Return a list of paths from the configuration; one string counts as a list of one.

    A list that cannot be used must not open what it was meant to close, so it is replaced by `when_unusable`, not by
    the default. Entries that are empty or were never expanded are left out.
    """
    value = config.raw(key)
    if value is None:
        return default
    entries = [value] if isinstance(value, str | Path) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str | Path) for entry in entries):
        return config.refuse(key, value, "a list of paths", when_unusable)
    usable = [str(entry) for entry in entries if str(entry).strip() and not _UNEXPANDED.fullmatch(str(entry))]
    if len(usable) < len(entries):
        make_do(f"{config.module_id}: config key {key!r}: empty and unexpanded entries", " are left out")
    return usable


def _folded(path: Path) -> Path:
    return Path(unicodedata.normalize("NFC", str(path)).casefold())


def _is_same_place(path: Path, roots: Sequence[Path]) -> bool:
    """Say whether a path or one of its parents is one of the roots, by identity."""
    wanted = set(_identities(roots))
    return bool(wanted) and any(identity in wanted for identity in _identities((path, *path.parents)))


def _identities(paths: Iterable[Path]) -> Iterator[tuple[int, int]]:
    for path in paths:
        try:
            found = path.lstat()
        except (OSError, ValueError):
            continue
        yield found.st_dev, found.st_ino
