"""Layers that make names disappear below a directory, for an overlay.

A layer is a directory with a whiteout, a character device 0:0, for every name that must not be seen. Whoever runs this
may make those, without any right (Linux 5.8). A layer is made once and used by every program that hides the same names.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_PRIVATE = 0o700


def layers_directory() -> Path:
    """Return where this user's layers are kept; a program that could write there could bring back what they hide.

    Only places count that every sandbox replaces by something of its own: a layer must not lie in what it covers.
    """
    stores = [place / f"amplifier-sandbox-{os.geteuid()}" for place in _replaced_places()]
    return next((store for store in stores if _is_private(store) or _can_be_made(store)), stores[0])


def _replaced_places() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return [Path("/tmp"), *([Path(runtime)] if runtime else ()), Path("/dev/shm")]


def _can_be_made(store: Path) -> bool:
    return os.access(store.parent, os.W_OK | os.X_OK) and not os.path.lexists(store)


def make_layer(covered: Path, names: Iterable[PurePosixPath]) -> Path:
    """Return a layer in which the names, relative to the covered directory, are gone; raises `OSError`."""
    names = sorted(set(names))
    folders = sorted({PurePosixPath(), *(parent for name in names for parent in name.parents)})
    modes = {folder: stat.S_IMODE((covered / folder).stat().st_mode) for folder in folders}
    described = repr((names, sorted(modes.items())))
    store = _checked_store()
    layer = store / hashlib.sha256(described.encode()).hexdigest()[:32]
    if not _is_whole(layer, names):
        _make(store, layer, names, modes)
    return layer


def _make(store: Path, layer: Path, names: list[PurePosixPath], modes: dict[PurePosixPath, int]) -> None:
    made = Path(tempfile.mkdtemp(prefix="new-", dir=store))
    try:
        for folder in modes:
            (made / folder).mkdir(exist_ok=True)
        for name in names:
            os.mknod(made / name, stat.S_IFCHR, os.makedev(0, 0))
        for folder in reversed(list(modes)):
            (made / folder).chmod(modes[folder])
        _put(made, layer, names, store)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _put(made: Path, layer: Path, names: list[PurePosixPath], store: Path) -> None:
    """Move a new layer to its place, where another process may have been faster, or a tidy one has left half of it."""
    try:
        made.rename(layer)
    except OSError:
        if _is_whole(layer, names):
            return
        with contextlib.suppress(FileNotFoundError):
            layer.rename(Path(tempfile.mkdtemp(prefix="old-", dir=store)) / "layer")
        made.rename(layer)


def _is_whole(layer: Path, names: Iterable[PurePosixPath]) -> bool:
    try:
        return layer.is_dir() and all(stat.S_ISCHR(os.lstat(layer / name).st_mode) for name in names)
    except OSError:
        return False


def _checked_store() -> Path:
    """Return the directory of all layers, made if need be; raises `OSError` when it is not this user's alone."""
    store = layers_directory()
    with contextlib.suppress(FileExistsError):
        store.mkdir(mode=_PRIVATE)
    if not _is_private(store):
        raise PermissionError(f"{store} is not private to this user; remove it")
    return store


def _is_private(store: Path) -> bool:
    try:
        found = store.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
