"""Where modes are found, and which file counts where several have one name."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amplifier_kit.mounting import find_capability, working_dir

from .definition import ModeDefinition, parse_mode_file

logger = logging.getLogger(__name__)

_OWN = Path(__file__).with_name("modes")
_FOLDER = Path(".amplifier", "modes")


class ModeListing(NamedTuple):
    """What a list of modes says of one."""

    name: str
    description: str
    source: str
    shortcut: str | None
    advertised: bool


class ModeDiscovery:
    """The modes of one session; of files with one stem the first counts: project, user, ours, configured, bundles.

    A file is read again when it has changed.
    """

    def __init__(self, search_paths: Sequence[str] = (), coordinator: Any = None) -> None:
        self._search_paths, self._coordinator = tuple(search_paths), coordinator
        self._read: dict[Path, tuple[tuple[int, int], ModeDefinition | None]] = {}

    def find(self, name: str) -> ModeDefinition | None:
        """Return the mode that a stem, a name or a shortcut means; in this order."""
        known = self.definitions()
        for called in ("stem", "name", "shortcut"):
            for mode in known:
                if getattr(mode, called) == name:
                    return mode
        folded = name.casefold()
        return next((mode for mode in known if folded in {each.casefold() for each in mode.names}), None)

    def list_modes(self) -> list[ModeListing]:
        """Return all modes, those that are not advertised included, by source and name."""
        return [
            ModeListing(mode.name, mode.description, mode.source, mode.shortcut, mode.advertised)
            for mode in self.definitions()
        ]

    def definitions(self) -> list[ModeDefinition]:
        found: dict[str, ModeDefinition] = {}
        for folder, source in self._folders():
            for file in sorted(folder.glob("*.md")):
                if file.stem not in found and (mode := self._parse(file, source)) is not None:
                    found[file.stem] = mode
        return list(found.values())

    def _parse(self, file: Path, source: str) -> ModeDefinition | None:
        try:
            stat = file.stat()
        except OSError:
            return None
        version = (stat.st_mtime_ns, stat.st_size)
        known = self._read.get(file)
        if known is None or known[0] != version:
            known = self._read[file] = (version, parse_mode_file(file, source))
        return known[1]

    def _folders(self) -> Iterator[tuple[Path, str]]:
        base = working_dir(self._coordinator)
        yield base / _FOLDER, "project"
        yield Path.home() / _FOLDER, "user"
        yield _OWN, "modes"
        for given in self._search_paths:
            if (folder := self._configured(given, base)) is not None:
                yield folder, "config"
        resolver = find_capability(self._coordinator, "mention_resolver")
        bundles = getattr(resolver, "bundles", None)
        for namespace, bundle in bundles.items() if isinstance(bundles, dict) else ():
            others = getattr(bundle, "source_base_paths", None)
            places = [getattr(bundle, "base_path", None), *(others.values() if isinstance(others, dict) else ())]
            for place in places:
                if isinstance(place, Path):
                    yield place / "modes", str(namespace)

    def _configured(self, given: str, base: Path) -> Path | None:
        if not given.startswith("@"):
            return base / Path(given).expanduser()
        resolve = getattr(find_capability(self._coordinator, "mention_resolver"), "resolve", None)
        found = resolve(given) if callable(resolve) else None
        if not isinstance(found, Path):
            logger.warning("hooks-mode: the search path %s leads nowhere", given)
            return None
        return found
