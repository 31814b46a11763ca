"""A cache of bundles that outlives the process: one JSON file for each key."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from amplifier_foundation.bundle import Bundle
from amplifier_system.files import write_atomically

logger = logging.getLogger(__name__)

_FORMAT = 1
_PATHS = ("context", "source_base_paths")
_NOT_KEPT = ("origins",)  # they say how a bundle was composed, not what it is


class DiskCache:
    """Bundles by key, in files of `cache_dir`. An entry that cannot be read is removed and counts as absent."""

    def __init__(self, cache_dir: Path) -> None:
        self.cache_dir = Path(cache_dir)

    def get(self, key: str) -> Bundle | None:
        file = self._file(key)
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            return _bundle_from(entry["bundle"]) if entry["format_version"] == _FORMAT else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            logger.warning("%s is not usable and is removed from the cache: %r", file, error)
            file.unlink(missing_ok=True)
            return None

    def set(self, key: str, bundle: Bundle) -> None:
        """Keep a bundle. One that is not plain data, such as with a date in its configuration, is not kept.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            text = json.dumps({"format_version": _FORMAT, "key": key, "bundle": _data_of(bundle)}, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            logger.warning("bundle %r is not kept in the cache: %s", bundle.name, error)
            self._file(key).unlink(missing_ok=True)
            return
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file(key), text.encode(), lasting=False)

    def clear(self) -> None:
        for file in self.cache_dir.glob("*.json"):
            file.unlink(missing_ok=True)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def _file(self, key: str) -> Path:
        return self.cache_dir / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


def _data_of(bundle: Bundle) -> dict[str, Any]:
    data = {item.name: getattr(bundle, item.name) for item in fields(bundle) if item.name not in _NOT_KEPT}
    for name in _PATHS:
        data[name] = {key: str(path) for key, path in data[name].items()}
    data["base_path"] = str(bundle.base_path) if bundle.base_path else None
    return data


def _bundle_from(data: dict[str, Any]) -> Bundle:
    for name in _PATHS:
        data[name] = {key: Path(path) for key, path in data[name].items()}
    base_path = data.pop("base_path")
    return Bundle(**data, base_path=Path(base_path) if base_path else None)
