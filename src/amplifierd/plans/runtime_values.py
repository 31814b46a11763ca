"""Which values of a running session a module wants in its configuration: what it declares in its `runtime.toml`.

The file lies in the module's package and has two tables, both in the shape of the module's configuration: `defaults`
holds what is set where a key is absent, `always` what is set in any case. Inside of their texts `<working_dir>`,
`<session_dir>`, `<sessions_dir>` and `<approvals_file>` stand for the session's own:

    [defaults]
    allowed_write_paths = ["<working_dir>"]

A declaration is read, not run: no module is imported for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import PlanEntry

from .module_declarations import declared_by

logger = logging.getLogger(__name__)

_PLACE = re.compile(r"<([a-z_]+)>")


@dataclass(frozen=True)
class RuntimePlaces:
    """Where a session works and keeps its files."""

    working_dir: Path
    session_dir: Path
    sessions_dir: Path
    approvals_file: Path


class RuntimeValues:
    """Fills in configurations for one session.

    `resolver` finds compiled modules, as it does for the kernel's loader; the rest is looked for among the installed.
    """

    def __init__(self, places: RuntimePlaces, resolver: ModuleSourceResolver | None = None) -> None:
        self._places = {name: str(place) for name, place in asdict(places).items()}
        self._resolver = resolver

    def fill_in(self, entry: PlanEntry, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a module's configuration with the values that it wants."""
        declared = declared_by(entry, self._resolver)
        filled = _laid_under(config, self._with_places(declared.get("defaults"), entry))
        return _laid_over(filled, self._with_places(declared.get("always"), entry))

    def _with_places(self, wanted: Any, entry: PlanEntry) -> Any:
        """Return what is wanted with the session's places in it."""
        if isinstance(wanted, Mapping):
            return {key: self._with_places(value, entry) for key, value in wanted.items()}
        if isinstance(wanted, list):
            return [self._with_places(value, entry) for value in wanted]
        if not isinstance(wanted, str):
            return wanted

        def place(match: re.Match[str]) -> str:
            if match[1] not in self._places:
                logger.warning("%s wants %s, which no session has", entry.module_id, match[0])
            return self._places.get(match[1], match[0])

        return _PLACE.sub(place, wanted)


def _laid_under(config: Mapping[str, Any], defaults: Any) -> dict[str, Any]:
    """Return a configuration with defaults for the keys that it lacks, at any depth."""
    filled = dict(config)
    for key, value in (defaults or {}).items():
        if key not in filled:
            filled[key] = value
        elif isinstance(value, Mapping) and isinstance(filled[key], Mapping):
            filled[key] = _laid_under(filled[key], value)
    return filled


def _laid_over(config: Mapping[str, Any], values: Any) -> dict[str, Any]:
    """Return a configuration with other values in place of its own, at any depth."""
    filled = dict(config)
    for key, value in (values or {}).items():
        own = filled.get(key)
        filled[key] = _laid_over(own, value) if isinstance(value, Mapping) and isinstance(own, Mapping) else value
    return filled
