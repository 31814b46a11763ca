"""The registry's face: names, states and loading."""

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import overload

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.exceptions import BundleNotFoundError
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_foundation.sources import Progress, SimpleSourceResolver, Sources
from amplifier_system.urls import shown

from .bundle_load import BundleLoad
from .library import IncludeSourceResolver, Library, namespace_in, resolve_in_namespace
from .state import BundleState, StateFile, UpdateInfo

logger = logging.getLogger(__name__)


class BundleRegistry:
    """Bundles by name: where they come from, what is known of them, and loading them with their includes.

    Nothing is built in; an application registers the names it wants to offer. States are kept in `registry.json` in
    `home`, which is made when there is something to save. With `strict` an include that fails is an error instead of a
    warning. `include_source_resolver` may give another source for an include as written, or `None`. `progress` is told
    of every step while sources are fetched; `offline=True` forbids that, None lets `AMPLIFIERD_OFFLINE` decide.
    `well_known` are sources by names that are registered as soon as something refers to them.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        strict: bool = False,
        include_source_resolver: IncludeSourceResolver | None = None,
        cache_dir: Path | None = None,
        progress: Progress | None = None,
        offline: bool | None = None,
        well_known: Mapping[str, str] | None = None,
    ) -> None:
        self._home = Path(home).expanduser().resolve() if home is not None else get_amplifier_home()
        self._strict = strict
        self._include_source_resolver = include_source_resolver
        self._file = StateFile(self._home / "registry.json")
        self._saving = threading.Lock()
        self._states = self._file.read()
        sources = Sources(cache_dir or self._home / "cache", offline=offline, progress=progress)
        self._sources = SimpleSourceResolver(base_path=Path.cwd(), sources=sources)
        self._library = Library(self._sources, self._states, well_known)
        if self._forget_vanished_paths():
            self._save_or_warn()

    @property
    def home(self) -> Path:
        return self._home

    @property
    def source_resolver(self) -> SimpleSourceResolver:
        """What finds the sources; handlers for sources of one's own can be added to it."""
        return self._sources

    def set_include_source_resolver(self, resolver: IncludeSourceResolver | None) -> None:
        """Replace what may give another source for an include."""
        self._include_source_resolver = resolver

    @overload
    def register(self, bundles: Mapping[str, str | Path]) -> None: ...
    @overload
    def register(self, bundles: str, uri: str | Path) -> None: ...
    def register(self, bundles: Mapping[str, str | Path] | str, uri: str | Path | None = None) -> None:
        """Give sources names: `register({name: uri})` or `register(name, uri)`.

        A known name keeps what is known of it and gets the new source. Not saved until `save()` or an explicit load.
        """
        if isinstance(bundles, str):
            if uri is None:
                raise TypeError(f"register({bundles!r}, uri) needs the bundle's source")
            bundles = {bundles: uri}
        for name, source in bundles.items():
            if state := self._states.get(name):
                state.uri = _source_text(source)
            else:
                self._states[name] = BundleState(_source_text(source), name)

    def find(self, name: str) -> str | None:
        """Return the source of a registered name."""
        state = self._states.get(name)
        return state.uri if state else self._library.well_known.get(name)

    def list_registered(self) -> list[str]:
        return sorted(self._states)

    def unregister(self, name: str) -> bool:
        """Forget a name and the relations to it; files and `registry.json` stay as they are until `save()`."""
        if self._states.pop(name, None) is None:
            return False
        self._library.adopted.discard(name)
        for state in self._states.values():
            state.includes = state.includes and [other for other in state.includes if other != name]
            state.included_by = state.included_by and [other for other in state.included_by if other != name]
        return True

    @overload
    async def load(self, name_or_uri: None = None, *, auto_register: bool = True) -> dict[str, Bundle]: ...
    @overload
    async def load(self, name_or_uri: str | Path, *, auto_register: bool = True) -> Bundle: ...
    async def load(
        self, name_or_uri: str | Path | None = None, *, auto_register: bool = True
    ) -> Bundle | dict[str, Bundle]:
        """Load a bundle by name or source, with its includes; or all registered ones, leaving out those that fail.

        The same source gives the same object again. A bundle loaded by itself is remembered as explicitly requested.
        `auto_register` changes nothing; bundles are always registered under their names.

        Raises:
            BundleError: the bundle cannot be found or used.
        """
        if name_or_uri is None:
            return await self._load_many(self.list_registered())
        source = await self._nested(_source_text(name_or_uri))
        was_loaded = self._library.key_of(source) in self._library.loaded
        bundle, _ = await self._load(source)
        if self._library.request(source, bundle) or not was_loaded:
            await asyncio.to_thread(self._save_or_warn)
        return bundle

    @overload
    async def check_update(self, name: None = None) -> list[UpdateInfo]: ...
    @overload
    async def check_update(self, name: str) -> UpdateInfo | None: ...
    async def check_update(self, name: str | None = None) -> UpdateInfo | list[UpdateInfo] | None:
        """Note that updates were looked for. Whether there are any, `amplifier_foundation.updates` can tell."""
        for known in self._states if name is None else [name]:
            if state := self._states.get(known):
                state.checked_at = datetime.now(UTC)
        return [] if name is None else None

    @overload
    async def update(self, name: None = None) -> dict[str, Bundle]: ...
    @overload
    async def update(self, name: str) -> Bundle: ...
    async def update(self, name: str | None = None) -> Bundle | dict[str, Bundle]:
        """Load a registered bundle, or all of them, again: sources are checked for changes, files are read again.

        The modules they name are asked for as well: what is prepared after this has their newest commits.

        Raises:
            KeyError: the name is not registered.
            BundleError: the bundle cannot be found or used.
        """
        if name is None:
            bundles = await self._load_many(self.list_registered(), refresh=True)
            await self._library.update_modules(bundles.values())
            return bundles
        if name not in self._states:
            raise KeyError(name)
        bundle, has_recorded_relations = await self._load(name, refresh=True)
        await self._library.update_modules([bundle])
        self._states[name].checked_at = datetime.now(UTC)
        if has_recorded_relations:
            await asyncio.to_thread(self._save_or_warn)
        return bundle

    @overload
    def get_state(self, name: None = None) -> dict[str, BundleState]: ...
    @overload
    def get_state(self, name: str) -> BundleState | None: ...
    def get_state(self, name: str | None = None) -> BundleState | dict[str, BundleState] | None:
        """Return what is known of a name, or of all names."""
        return dict(self._states) if name is None else self._states.get(name)

    def save(self) -> None:
        """Write `registry.json`.

        Raises:
            OSError: it cannot be written; the old file is as it was.
        """
        unseen = {name for name in self._library.adopted if self._states[name].local_path is None}
        with self._saving:
            self._file.write({name: state for name, state in self._states.items() if name not in unseen})

    async def load_source(self, source: str, *, auto_include: bool = True) -> Bundle:
        """Load a bundle without marking it as explicitly requested; without `auto_include`, only its own file."""
        source = await self._nested(source)
        if not auto_include:
            reading = await self._library.read(source)
            reading.bundle._source_uri = reading.uri
            return reading.bundle
        bundle, has_recorded_relations = await self._load(source)
        if has_recorded_relations:
            await asyncio.to_thread(self._save_or_warn)
        return bundle

    @property
    def _registry(self) -> Mapping[str, BundleState]:
        """What is known of every name, for applications that walk the include chains."""
        return self._states

    def _resolve_include_source(self, source: str) -> str | None:
        """Return the source that `namespace:path` means, None if it is unknown; any other source as it is."""
        namespace = namespace_in(source)
        if namespace is None:
            return source
        state = self._states.get(namespace)
        return resolve_in_namespace(source.partition(":")[2], state) if state else None

    async def _nested(self, reference: str) -> str:
        """Return the source of a bundle that a registered one contains, `namespace:path`; any other as it is.

        Raises:
            BundleNotFoundError: the registered bundle contains no such path.
        """
        self._library.adopt(reference)
        namespace = namespace_in(reference)
        state = self._states.get(namespace) if namespace is not None and reference not in self._states else None
        if namespace is None or state is None:
            return reference
        if state.local_path is None:
            await self._load(namespace)
        found = await asyncio.to_thread(self._resolve_include_source, reference)
        if found is None:
            raise BundleNotFoundError(
                f"bundle {namespace!r} ({shown(state.uri)}) has no {reference.partition(':')[2]!r}"
            )
        return found

    async def _load(self, reference: str, *, refresh: bool = False) -> tuple[Bundle, bool]:
        load = BundleLoad(self._library, self._include_source_resolver, strict=self._strict, refresh=refresh)
        return await load.run(reference), load.has_recorded_relations

    async def _load_many(self, names: Iterable[str], *, refresh: bool = False) -> dict[str, Bundle]:
        names = list(names)
        outcomes = await asyncio.gather(*(self._load(name, refresh=refresh) for name in names), return_exceptions=True)
        bundles: dict[str, Bundle] = {}
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, Exception):
                logger.warning("bundle %r cannot be loaded: %s", name, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                bundles[name], _ = outcome
                if refresh and (state := self._states.get(name)):
                    state.checked_at = datetime.now(UTC)
        if any(isinstance(outcome, tuple) and outcome[1] for outcome in outcomes):
            await asyncio.to_thread(self._save_or_warn)
        return bundles

    def _forget_vanished_paths(self) -> bool:
        vanished = [
            state for state in self._states.values() if state.local_path and not Path(state.local_path).exists()
        ]
        for state in vanished:
            state.local_path = None
        return bool(vanished)

    def _save_or_warn(self) -> None:
        try:
            self.save()
        except OSError as error:
            logger.warning("the registry's state is not saved: %s", error)


async def load_bundle(
    source: str | Path, *, auto_include: bool = True, registry: BundleRegistry | None = None, strict: bool = False
) -> Bundle:
    """Load a bundle, or an agent, from a registered name, a path or any other source, with everything it includes.

    Without `auto_include` only the file itself is read. `strict` makes an include that fails an error; a `registry`
    brings its own strictness.

    Raises:
        BundleError: the bundle cannot be found or used.
        ValueError: both `registry` and `strict=True` are given.
    """
    if registry is not None and strict:
        raise ValueError("Cannot pass strict=True together with a registry: create it with BundleRegistry(strict=True)")
    if registry is None:
        registry = BundleRegistry(strict=strict)
    return await registry.load_source(_source_text(source), auto_include=auto_include)


def _source_text(source: str | Path) -> str:
    return str(source.expanduser().absolute()) if isinstance(source, Path) else source  # a Path is never a name
