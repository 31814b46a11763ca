"""Where a tool may look and write: paths as a model gives them, and the lists of what is allowed and denied."""

import errno
import fcntl
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amplifier_kit.config import LenientConfig, make_do
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
    """True if a path or one of its parents is one of the roots, by identity."""
    wanted = set(_identities(roots))
    return bool(wanted) and any(identity in wanted for identity in _identities((path, *path.parents)))


def _identities(paths: Iterable[Path]) -> Iterator[tuple[int, int]]:
    for path in paths:
        try:
            found = path.lstat()
        except (OSError, ValueError):
            continue
        yield found.st_dev, found.st_ino


# Opening what a check was made of: directory by directory, by descriptor, and through no symbolic link.

# A directory that may be passed through need not be readable.
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_NOT_FOLLOWED = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}
_PATH_BYTES = 1024


class LinkInTheWayError(OSError):
    """There is a symbolic link where a resolved path had none: it was put there since."""


@contextmanager
def opened_directory(path: Path, *, create: bool = False) -> Iterator[int]:
    """Open a directory by its resolved path, and make what is missing of it when `create` is set.

    Raises `LinkInTheWayError`, or the `OSError` of the component that cannot be entered. The descriptor serves as
    `dir_fd` only.
    """
    descriptor = os.open(path.anchor, _DIRECTORY)
    try:
        for name in path.parts[1:]:
            inner = _enter(descriptor, name, create=create)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def stat_in(directory: int, name: str) -> os.stat_result | None:
    """Return what an entry of an open directory is, None when there is none; raises `LinkInTheWayError`."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise LinkInTheWayError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return found


def open_in(directory: int, name: str, flags: int, mode: int = 0o666) -> int:
    """Open an entry of an open directory without waiting; raises `LinkInTheWayError`."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(name, flags, mode, dir_fd=directory)
    except OSError as exc:
        if exc.errno in _NOT_FOLLOWED:
            stat_in(directory, name)
        raise


def real_path(descriptor: int) -> Path | None:
    """Return where an open file or directory lies now; None where the system does not tell."""
    found = real_name(descriptor)
    return None if found is None else Path(found)


def real_name(descriptor: int) -> str | None:
    """Return the same as text, for those who ask about thousands of files."""
    try:
        if sys.platform == "darwin":
            found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(_PATH_BYTES))
            return os.fsdecode(found.partition(b"\0")[0])
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path takes longer than the call
    except OSError:
        return None


def _enter(directory: int, name: str, *, create: bool) -> int:
    while True:
        try:
            return open_in(directory, name, _DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
