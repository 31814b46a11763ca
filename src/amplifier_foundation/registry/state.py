"""What the registry remembers of a bundle, and the file that keeps it."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from amplifier_foundation.io.files import write_with_backup
from amplifier_system.files import write_atomically
from amplifier_system.urls import shown

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1


@dataclass
class BundleState:
    """What is known of a registered bundle: its source, where it was found, and who includes whom."""

    uri: str
    name: str
    version: str | None = None
    loaded_at: datetime | None = None
    checked_at: datetime | None = None
    local_path: str | None = None
    includes: list[str] | None = None
    included_by: list[str] | None = None
    is_root: bool = True
    root_name: str | None = None
    explicitly_requested: bool = False
    app_bundle: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON data; relations and root are left out when there are none; credentials always."""
        data: dict[str, Any] = {
            "uri": shown(self.uri),
            "name": self.name,
            "version": self.version,
            "loaded_at": self.loaded_at.isoformat() if self.loaded_at else None,
            "checked_at": self.checked_at.isoformat() if self.checked_at else None,
            "local_path": self.local_path,
            "is_root": self.is_root,
            "explicitly_requested": self.explicitly_requested,
            "app_bundle": self.app_bundle,
        }
        optional = {"includes": self.includes, "included_by": self.included_by, "root_name": self.root_name}
        return data | {key: value for key, value in optional.items() if value}

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any]) -> Self:
        """Return the state that `to_dict` printed.

        Raises:
            KeyError: there is no `uri`.
            ValueError: a date is not an ISO date.
        """
        loaded_at, checked_at = data.get("loaded_at"), data.get("checked_at")
        return cls(
            uri=data["uri"],
            name=name,
            version=data.get("version"),
            loaded_at=datetime.fromisoformat(loaded_at) if loaded_at else None,
            checked_at=datetime.fromisoformat(checked_at) if checked_at else None,
            local_path=data.get("local_path"),
            includes=data.get("includes"),
            included_by=data.get("included_by"),
            is_root=data.get("is_root", True),
            root_name=data.get("root_name"),
            explicitly_requested=data.get("explicitly_requested", False),
            app_bundle=data.get("app_bundle", False),
        )


@dataclass
class UpdateInfo:
    """A newer version of a registered bundle."""

    name: str
    current_version: str | None
    available_version: str
    uri: str


class StateFile:
    """`registry.json`: the states of all registered bundles."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_unusable = False

    def read(self) -> dict[str, BundleState]:
        """Return the states by name; none, with a warning, when the file cannot be used."""
        try:
            return _parse_states(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._is_unusable = True
            logger.warning("%s cannot be used, starting with no registered bundles: %r", self._path, error)
            return {}

    def write(self, states: Mapping[str, BundleState]) -> None:
        """Replace the file in one step; one that could not be read is kept beside it as `registry.json.backup`."""
        bundles = {name: state.to_dict() for name, state in states.items()}
        text = json.dumps({"version": FORMAT_VERSION, "bundles": bundles}, indent=2)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._is_unusable:
            write_with_backup(self._path, text)
        else:
            write_atomically(self._path, text.encode(), lasting=False)  # what was noted last can be noted again
        self._is_unusable = False


def _parse_states(text: str) -> dict[str, BundleState]:
    data = json.loads(text)
    version = data.get("version", FORMAT_VERSION)
    if version > FORMAT_VERSION:
        raise ValueError(f"it has format version {version}, this release reads {FORMAT_VERSION}")
    return {name: BundleState.from_dict(name, state) for name, state in data["bundles"].items()}
