"""Wheels without code: they tell an installer of something that is there already, or of who requires what."""

import base64
import csv
import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

from amplifier_foundation.sources.store import remove

from .requirements import normalise_name

_WHEEL = "Wheel-Version: 1.0\nGenerator: amplifier\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_stub(directory: Path, name: str, version: str, metadata: str) -> Path:
    """Write a wheel that has nothing but its metadata, and return its path."""
    stem = f"{normalise_name(name).replace('-', '_')}-{version}"
    contents = {f"{stem}.dist-info/METADATA": metadata, f"{stem}.dist-info/WHEEL": _WHEEL}
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in contents.items())
    wheel = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
        archive.writestr(f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")
    return wheel


def installed_in(target: Path) -> dict[str, tuple[str, Path]]:
    """Return the distributions in a target directory: normalised name → version and `.dist-info` directory."""
    found = {}
    for directory in sorted(target.glob("*.dist-info")):
        name, _, version = directory.name.removesuffix(".dist-info").rpartition("-")
        found[normalise_name(name)] = (version, directory)
    return found


def uninstall(target: Path, names: Iterable[str]) -> None:
    """Take distributions out of a target directory, with the files they brought."""
    installed = installed_in(target)
    for name in names:
        if name not in installed:
            continue
        _, directory = installed[name]
        for path in _files_of(directory):
            if path.is_relative_to(target) and ".." not in path.parts:
                path.unlink(missing_ok=True)
                _remove_empty(path.parent, target)
        remove(directory)


def _files_of(dist_info: Path) -> list[Path]:
    record = dist_info / "RECORD"
    if not record.is_file():
        return []
    with record.open(encoding="utf-8", newline="") as file:
        return [dist_info.parent / row[0] for row in csv.reader(file) if row]


def _remove_empty(directory: Path, target: Path) -> None:
    while directory != target and directory.is_dir():
        entries = list(directory.iterdir())
        if any(entry.name != "__pycache__" for entry in entries):
            return
        remove(directory)
        directory = directory.parent


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
