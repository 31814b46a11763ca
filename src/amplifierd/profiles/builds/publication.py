"""Where builds are put, and how one of them becomes the profile's directory in a single step.

`profiles/<collection>/<profile>` is a plain directory until the first compile, then a link to a directory in
`profiles/<collection>/.builds/<profile>/`. Those directories are made under a temporary name, never changed afterwards,
and removed when another is published and no one holds them. Whatever a crash leaves behind has a name that begins with
a dot and goes with the next change. Everything here blocks; all but the questions need the profile's lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from amplifier_foundation.sources.store import locked_now, make_directory, remove, unique
from amplifier_system.files import write_atomically
from amplifierd.exceptions import ProfileError
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths

from . import build_parts
from .build import move_if_unheld

logger = logging.getLogger(__name__)

BUILDS_DIR = ".builds"
PROFILE_FILE = "profile.md"

_PARKED = ".parked"
_LEFTOVERS = (".staging-*", ".trash-*", ".link-*")
_LOCK_WAIT_S = 1800.0
_SWAP = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
_HERE = -100  # AT_FDCWD on Linux


def builds_dir(paths: Paths, profile_id: ProfileId) -> Path:
    return paths.profiles / profile_id.collection / BUILDS_DIR / profile_id.name


def lock_path(paths: Paths, profile_id: ProfileId) -> Path:
    return paths.locks / f"profile-{profile_id.collection}+{profile_id.name}.lock"


def find_published(paths: Paths, profile_id: ProfileId) -> Path | None:
    """Return the directory that a profile's path means now; a link is followed, so it keeps meaning the same."""
    published = paths.profile_dir(profile_id)
    with contextlib.suppress(OSError):
        published = published.parent / published.readlink()
    return published if published.is_dir() else None


def find_build(paths: Paths, profile_id: ProfileId, build_id: str) -> Path | None:
    """Return the directory of a build that is still there, the newest where a damaged one was replaced."""
    found = [path for path in _builds(paths, profile_id) if path.name.partition(".")[0] == build_id]
    return max(found, key=lambda path: int(path.name.partition(".")[2] or 0), default=None)


def make_staging(paths: Paths, profile_id: ProfileId) -> Path:
    """Make the directory that a build is put together in."""
    return make_directory(builds_dir(paths, profile_id) / f".staging-{profile_id.name}-{unique()}")


def place(paths: Paths, profile_id: ProfileId, staging: Path, build_id: str) -> Path:
    """Put a finished directory among a profile's builds, its files read-only, and return where it is now."""
    seal(staging)
    target = staging.rename(_free_name(builds_dir(paths, profile_id), build_id))
    build_parts.settle(paths, profile_id, target)
    return target


def publish(paths: Paths, profile_id: ProfileId, staging: Path, build_id: str) -> Path:
    """Make a finished directory the profile's, its files read-only, and return where it is now."""
    target = place(paths, profile_id, staging, build_id)
    _point_to(paths, profile_id, target)
    return target


def replace_profile_text(paths: Paths, profile_id: ProfileId, text: str) -> None:
    """Put another `profile.md` into a profile's directory, which is made if need be; its lock is taken for it.

    A build stays unchanged for those who use it: the profile's path moves on to a copy with the new text.
    """
    with _locked(paths, profile_id):
        sweep(paths, profile_id)
        published = paths.profile_dir(profile_id)
        if published.is_dir() and not published.is_symlink():
            write_atomically(published / PROFILE_FILE, text.encode(), private=True)
            return
        staging = make_staging(paths, profile_id)
        if (current := find_published(paths, profile_id)) is not None:
            link_tree(current, staging, without=PROFILE_FILE)
        write_atomically(staging / PROFILE_FILE, text.encode(), private=True)
        if not published.is_symlink():
            staging.rename(published)
            _remove_if_empty(builds_dir(paths, profile_id))
            return
        seal(staging)
        pending = staging.rename(staging.with_name(f"pending-{unique()}"))
        _point_to(paths, profile_id, pending)
        remove_old_builds(paths, profile_id, only="pending-")


def remove_profile(paths: Paths, profile_id: ProfileId) -> None:
    """Take a profile out of the home; its lock is taken for it. Builds that are held stay until they are released."""
    with _locked(paths, profile_id):
        published, builds = paths.profile_dir(profile_id), builds_dir(paths, profile_id)
        if published.is_symlink():
            published.unlink()
        elif published.is_dir():
            published.rename(make_directory(builds) / f".trash-{unique()}")
        remove(builds / _PARKED)
        remove_old_builds(paths, profile_id)
        _remove_if_empty(builds)


def remove_old_builds(
    paths: Paths, profile_id: ProfileId, *, keep: Collection[str] = (), only: str = ""
) -> tuple[Path, ...]:
    """Remove the builds of a profile that are neither published nor held, and return where they were.

    `keep` has the ids of builds that stay all the same; `only` is how the names begin that are looked at.
    """
    sweep(paths, profile_id)
    published = find_published(paths, profile_id)
    removed = []
    for path in _builds(paths, profile_id):
        if path == published or path.name.partition(".")[0] in keep or not path.name.startswith(only):
            continue
        trash = path.with_name(f".trash-{unique()}")
        if move_if_unheld(path, trash):
            remove(trash)
            build_parts.forget(paths, profile_id, path)
            removed.append(path)
    return tuple(removed)


def sweep(paths: Paths, profile_id: ProfileId) -> None:
    """Remove what a crash left of a profile's builds, and put back a directory that was about to be replaced."""
    builds, published = builds_dir(paths, profile_id), paths.profile_dir(profile_id)
    parked = builds / _PARKED
    if parked.is_dir():
        if published.is_symlink() or published.exists():
            remove(parked)
        else:
            parked.rename(published)
    for pattern in _LEFTOVERS:
        for leftover in builds.glob(pattern):
            remove(leftover)


def recover(paths: Paths, profile_id: ProfileId) -> bool:
    """Put back the directory of a profile that a crash left without one, and say whether there was one to put back."""
    if not (builds_dir(paths, profile_id) / _PARKED).is_dir():
        return False
    with _locked(paths, profile_id):
        sweep(paths, profile_id)
    return True


def link_tree(source: Path, target: Path, *, without: str = "") -> None:
    """Fill a directory with links to the files of another, or with copies where the file system has no such links."""

    def ignored(directory: str, names: list[str]) -> list[str]:
        return [without] if without in names and Path(directory) == source else []

    shutil.copytree(source, target, copy_function=link_or_copy, ignore=ignored, dirs_exist_ok=True)


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def seal(directory: Path) -> None:
    """Make the files of a directory read-only; directories stay writable.

    A file that has another name, in an installer's cache for example, is replaced by a copy: the other keeps its mode.
    """
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent, name)
            status = path.lstat()
            mode = sealed_mode(status.st_mode)
            if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) == mode:
                continue
            if status.st_nlink > 1:
                copy = path.with_name(f".{unique()}")
                shutil.copy2(path, copy)
                copy.replace(path)
            path.chmod(mode)


def sealed_mode(mode: int) -> int:
    """Return the mode of a file in a build; one that is for the owner alone stays so."""
    sealed = 0o555 if mode & 0o100 else 0o444
    return sealed if mode & 0o044 else sealed & 0o700


def _remove_if_empty(builds: Path) -> None:
    with contextlib.suppress(OSError):  # builds in use, or other profiles' builds, are still there
        builds.rmdir()
        builds.parent.rmdir()


@contextmanager
def _locked(paths: Paths, profile_id: ProfileId) -> Iterator[None]:
    path = lock_path(paths, profile_id)
    with locked_now(path, wait_s=_LOCK_WAIT_S) as held:
        if not held:
            raise ProfileError(f"Another process has worked on profile {profile_id} for too long ({path})")
        yield


def _builds(paths: Paths, profile_id: ProfileId) -> list[Path]:
    directory = builds_dir(paths, profile_id)
    names = sorted(os.listdir(directory)) if directory.is_dir() else []  # noqa: PTH208 - names are enough
    return [directory / name for name in names if not name.startswith(".")]


def _free_name(directory: Path, build_id: str) -> Path:
    taken = {name for name in os.listdir(directory) if name.partition(".")[0] == build_id}  # noqa: PTH208 - names are enough
    if not taken:
        return directory / build_id
    return directory / f"{build_id}.{max(int(name.partition('.')[2] or 0) for name in taken) + 1}"


def _point_to(paths: Paths, profile_id: ProfileId, target: Path) -> None:
    """Make the profile's path mean another directory of its builds."""
    published = paths.profile_dir(profile_id)
    link = target.with_name(f".link-{unique()}")
    link.symlink_to(Path(BUILDS_DIR, profile_id.name, target.name))  # it counts from where it is moved to
    if published.is_symlink() or not published.exists():
        link.replace(published)
    elif _exchange(link, published):
        remove(link)  # now the plain directory that was there
    else:
        parked = target.with_name(_PARKED)
        published.rename(parked)
        link.rename(published)
        remove(parked)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; False where the system or the file system cannot do that."""
    import ctypes  # most publications replace a link

    library = ctypes.CDLL(None, use_errno=True)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(os.fsencode(one), os.fsencode(other), _SWAP)
        else:
            failed = library.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP)
    except AttributeError:
        return False
    if failed:
        logger.debug("cannot exchange %s and %s: %s", one, other, os.strerror(ctypes.get_errno()))
    return not failed
