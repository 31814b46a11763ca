"""Files of ours that outlive a version: JSON with a `format_version`; an older one is migrated, a newer one refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import write_atomically

from .exceptions import FormatUnsupportedError

logger = logging.getLogger(__name__)

KEY = "format_version"

Migration = Callable[[dict[str, Any]], dict[str, Any]]


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


@dataclass(frozen=True)
class StoredFormat:
    """One kind of file: the version written now, and how a value of version n becomes one of n + 1.

    A version without a migration has the shape of the one after it. Files that are `private` are for their owner alone.
    """

    version: int = 1
    migrations: Mapping[int, Migration] = field(default_factory=dict)
    private: bool = False

    def read(self, path: Path) -> dict[str, Any] | None:
        """Return what a file holds, None when there is no such file.

        A file of an older version is copied to `<name>.v<n>.bak` beside it and then rewritten in the current one.

        Raises:
            FormatUnsupportedError: a newer version wrote it; it was left as it is.
            ValueError: there is no JSON object in it.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        value = _parse_object(content, path)
        version = self._version_of(value, path)
        if version == self.version:
            return value
        migrated = self._migrate(value, version)
        try:
            shutil.copy2(path, path.with_name(f"{path.name}.v{version}.bak"))
            self.write(path, migrated)
        except PermissionError:
            logger.warning("%s stays in format %s: it cannot be written", path, version)
        else:
            logger.info("%s was migrated from format %s to %s", path, version, self.version)
        return migrated

    def parse(self, content: bytes, path: Path | str) -> dict[str, Any]:
        """Return what the contents of a file mean to this version; the file itself is left as it is.

        Raises what `read` raises.
        """
        value = _parse_object(content, path)
        return self._migrate(value, self._version_of(value, path))

    def stamped(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value as it is written."""
        return {KEY: self.version, **{key: item for key, item in value.items() if key != KEY}}

    def write(self, path: Path, value: Mapping[str, Any]) -> None:
        """Replace a file in one step."""
        write_json(path, self.stamped(value), private=self.private)

    def _version_of(self, value: Mapping[str, Any], path: Path | str) -> int:
        version = value.get(KEY, 0)
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise ValueError(f"{path} has the {KEY} {version!r}, which is not a version")
        if version > self.version:
            raise FormatUnsupportedError(
                f"{path} has format {version}, this version reads up to {self.version}",
                hint="use the version that wrote it, or a newer one",
            )
        return version

    def _migrate(self, value: dict[str, Any], version: int) -> dict[str, Any]:
        for step in range(version, self.version):
            value = self.migrations.get(step, _same)(value)
        return {**value, KEY: self.version}


def _parse_object(content: bytes, path: Path | str) -> dict[str, Any]:
    match json.loads(content):
        case dict() as value:
            return value
        case other:
            raise ValueError(f"{path} holds a {type(other).__name__}, not a JSON object")


def write_json(path: Path, value: Any, *, private: bool = False, lasting: bool = True) -> None:
    """Write a value as JSON is stored here, in one step; missing directories are made, for the owner alone.

    `private` and `lasting` are what they are to `write_atomically`.
    """
    make_directory(path.parent)
    write_atomically(path, json_text(value), private=private, lasting=lasting)


def json_text(value: Any) -> bytes:
    """Return a value as JSON is stored here; halves of surrogate pairs are escaped."""
    try:
        return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(value, indent=2) + "\n").encode()
