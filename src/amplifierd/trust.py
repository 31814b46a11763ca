"""Which directories the owner of a home trusts: `config/trust.json`. Only in these are snapshots taken.

The file also remembers which directories the owner was asked about and does not trust.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from amplifier_foundation.sources.locks import locked_now

from .exceptions import SettingsError, TrustError
from .paths import Paths
from .stored_json import StoredFormat

FORMAT = StoredFormat(version=1)
_LOCK_WAIT_S = 30.0
_TRUSTED, _DECLINED = "directories", "declined"


class Trust:
    """The trusted directories of a home; all with what is below them, symlinks resolved."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.trust_file
        self._lock = paths.locks / "trust.lock"

    def list(self) -> tuple[Path, ...]:
        """Return the trusted directories, in the order of their paths.

        Raises:
            SettingsError: the file is damaged.
            FormatUnsupportedError: a newer version wrote it.
        """
        return tuple(sorted(self._read(_TRUSTED)))

    def add(self, directory: Path | str) -> None:
        """Trust a directory and what is below it.

        Raises:
            TrustError: it is not a directory, or it is `/`, the user's home directory or one above that.
        """
        trusted = _resolved(directory)
        if not trusted.is_dir():
            raise TrustError(f"{trusted} is not a directory", hint="name one that exists")
        if why := _too_wide(trusted):
            raise TrustError(f"{trusted} cannot be trusted: {why}", hint="trust the directory of one project")
        if os.fsdecode(os.fsencode(trusted).decode("utf-8", "replace")) != str(trusted):
            raise TrustError(f"{str(trusted)!r} cannot be trusted: its name is not UTF-8", hint="rename it")
        self._change({_TRUSTED: lambda known: known | {trusted}, _DECLINED: lambda known: known - {trusted}})

    def remove(self, directory: Path | str) -> bool:
        """Trust a directory no longer; False when it was not in the list."""
        return self._change({_TRUSTED: lambda known: known - {_resolved(directory)}})

    def decline(self, directory: Path | str) -> None:
        """Remember that the owner was asked about a directory and does not trust it."""
        self._change({_DECLINED: lambda known: known | {_resolved(directory)}})

    def has_declined(self, directory: Path | str) -> bool:
        """Say whether the owner was asked about this directory and does not trust it."""
        return _resolved(directory) in self._read(_DECLINED)

    def contains(self, directory: Path | str) -> bool:
        """Say whether a directory is trusted, or lies below one that is."""
        place = _resolved(directory)
        return any(place.is_relative_to(each) and not _too_wide(each) for each in self.list())

    def why_no_snapshot(self, directory: Path | str, *, is_trusted: bool = False) -> str:
        """Say why a directory may not be snapshotted; empty when it may.

        `is_trusted` stands for the list where the caller vouches for the directory, as a program does that opens a
        session in it. A home directory and those above it are refused in any case.
        """
        place = _resolved(directory)
        if not place.is_dir():
            return f"{place} is not a directory"
        if why := _too_wide(place):
            return why
        if is_trusted or self.contains(place):
            return ""
        return f"{place} is not a trusted directory"

    def _read(self, key: str) -> set[Path]:
        try:
            value = FORMAT.read(self._file) or {_TRUSTED: []}
            return {Path(str(each)) for each in (value[key] if key == _TRUSTED else value.get(key, []))}
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"{self._file} is damaged: {error}", hint="repair or remove it, then trust your directories again"
            ) from error

    def _change(self, changes: Mapping[str, Callable[[set[Path]], set[Path]]]) -> bool:
        with locked_now(self._lock, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{self._file} is being changed by another process")
            before = {key: self._read(key) for key in (_TRUSTED, _DECLINED)}
            after = before | {key: change(before[key]) for key, change in changes.items()}
            if after != before:
                kept = {key: sorted(map(str, places)) for key, places in after.items() if places or key == _TRUSTED}
                FORMAT.write(self._file, kept)
            return after != before


def _resolved(directory: Path | str) -> Path:
    try:
        expanded = Path(directory).expanduser()
    except RuntimeError as error:
        raise TrustError(f"{directory} begins with a user who is not known here", hint="write the path out") from error
    return Path(os.path.realpath(expanded))  # `resolve` raises when symlinks go in a circle


def _too_wide(directory: Path) -> str:
    """Say why a directory holds too much to be trusted or snapshotted; empty when it does not."""
    home = _resolved("~")
    if directory == Path(directory.anchor):
        return f"{directory} is the root of the file system"
    if directory == home:
        return f"{directory} is your home directory"
    return f"your home directory is inside {directory}" if home.is_relative_to(directory) else ""
