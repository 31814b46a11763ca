"""What the registry knows while it works: states, bundles read, bundles complete."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.sourced_entries import sourced_entries
from amplifier_foundation.paths.resolution import ResolvedSource, cut_fragment, parse_uri
from amplifier_foundation.sources.resolver import SimpleSourceResolver
from amplifier_foundation.sources.worker_batches import WorkerBatches
from amplifier_system.urls import shown

from .bundle_reader import BundleReader, Reading
from .include_sources import file_uri, is_local, names_subpath, subdirectory_uri
from .shared_tasks import SharedTasks
from .state import BundleState

logger = logging.getLogger(__name__)

IncludeSourceResolver = Callable[[str], str | None]


class Library:
    """Reads and registers bundles; each source is read once, and once only when several ask at the same time."""

    def __init__(self, sources: SimpleSourceResolver, states: dict[str, BundleState]) -> None:
        self.sources = sources
        self.states = states
        self.loaded: dict[str, Bundle] = {}
        """What was loaded with its includes, by key."""
        self.free_of_circles: set[str] = set()
        """The keys of `loaded` that mean the same bundle wherever they are included."""
        self._readings: dict[str, Reading] = {}
        self._reading_now = SharedTasks[Reading]()
        self._reader = BundleReader(sources.real_cache_dir)
        self._reading_room = WorkerBatches[Reading]()

    def key_of(self, reference: str) -> str:
        """Return what identifies the content that a registered name or a source means."""
        uri = self._uri_of(reference)
        if not names_subpath(uri):
            uri = cut_fragment(uri)[0] if "://" in uri else uri
        return file_uri(Path(uri)) if uri.startswith("/") else uri

    def forget(self, key: str) -> None:
        """Take back that a bundle was loaded."""
        self.loaded.pop(key, None)
        self.free_of_circles.discard(key)

    def find_file(self, key: str) -> Path | None:
        """Return the file that was read for a key."""
        reading = self._readings.get(key)
        return reading.bundle._file if reading else None

    async def read(self, reference: str, *, refresh: bool = False) -> Reading:
        """Return the bundle of a registered name or a source without its includes, and register it.

        `refresh` asks the source for news and reads the file again.

        Raises:
            BundleError: it cannot be found or used.
        """
        key = self.key_of(reference)
        if not refresh and (known := self._readings.get(key)):
            if (state := self.states.get(reference)) and not state.local_path:
                self._register(known, reference)  # the source was read before it had this name
            return known
        uri = self._uri_of(reference)
        reading = await self._reading_now.run((key, refresh), lambda: self._read(uri, refresh))
        self._readings[key] = reading
        self._register(reading, reference if reference in self.states else None)
        return reading

    async def update_modules(self, bundles: Iterable[Bundle]) -> None:
        """Ask the repositories of the modules that bundles and their agents name for news; a failure is logged."""
        sources = list(dict.fromkeys(source for bundle in bundles for source in _module_sources(bundle)))
        outcomes = await asyncio.gather(*map(self._update_source, sources), return_exceptions=True)
        for source, outcome in zip(sources, outcomes, strict=True):
            if isinstance(outcome, Exception):
                logger.warning("what is new at %s is not known: %s", shown(source), outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    def request(self, reference: str, bundle: Bundle) -> bool:
        """Note that this bundle was asked for by itself, and say whether that is new."""
        states = [state for name in (reference, bundle.namespace) if (state := self.states.get(name))]
        is_new = not all(state.explicitly_requested for state in states)
        for state in states:
            state.explicitly_requested = True
        return is_new

    def relate(self, parent: Bundle, children: Iterable[Bundle]) -> None:
        """Record whom a bundle includes, in place of what was recorded before."""
        state = self.states.get(parent.namespace)
        if state is None:
            return
        names = list(dict.fromkeys(child.namespace for child in children if child.namespace))
        for name in state.includes or ():
            former = self.states.get(name)
            if name not in names and former and former.included_by:
                former.included_by = [other for other in former.included_by if other != state.name]
        state.includes = names
        for name in names:
            child = self.states.get(name)
            if child and state.name not in (child.included_by or ()):
                child.included_by = [*(child.included_by or ()), state.name]

    def _uri_of(self, reference: str) -> str:
        state = self.states.get(reference)
        return state.uri if state else reference

    async def _read(self, uri: str, refresh: bool) -> Reading:
        source = await (self._update_source(uri) if refresh else self.sources.resolve(uri))
        return await self._reading_room.run(lambda: self._reader.read(uri, source))

    async def _update_source(self, uri: str) -> ResolvedSource:
        parsed = parse_uri(uri)
        for handler in self.sources._handlers:
            if handler.can_handle(parsed):
                if update := getattr(handler, "update", None):
                    updated: ResolvedSource = await update(parsed, self.sources.cache_dir)
                    return updated
                break
        return await self.sources.resolve(uri)

    def _register(self, reading: Reading, alias: str | None) -> None:
        """Record a bundle under its name, and under the registered name it was asked for by."""
        self._register_root(reading)
        uri, name = reading.uri, reading.bundle.namespace
        names = {alias or name}
        if name and name not in self.states:
            root_name = reading.root.name if reading.root and reading.is_nested else ""
            self.states[name] = BundleState(uri, name, is_root=not reading.is_nested, root_name=root_name or None)
            names.add(name)
        for state in (self.states[name] for name in names if name):
            if state.is_root and names_subpath(uri) and state.uri != uri:
                continue  # a part of the tree does not speak for its root
            state.uri, state.version = uri, reading.bundle.version
            state.loaded_at = datetime.now(UTC)
            state.local_path = str(reading.source.active_path)

    def _register_root(self, reading: Reading) -> None:
        root, uri = reading.root, reading.uri
        if root is None or not root.name or root.name in self.states:
            return
        if is_local(uri):
            root_uri = file_uri(root.directory)
        else:
            inside = root.directory.relative_to(reading.source.source_root).as_posix()
            root_uri = subdirectory_uri(uri, inside)
        self.states[root.name] = BundleState(
            root_uri, root.name, root.version, datetime.now(UTC), local_path=str(root.directory)
        )


def _module_sources(bundle: Bundle) -> Iterator[str]:
    for entry in sourced_entries(bundle.to_mount_plan()):
        if isinstance(entry.source, str) and parse_uri(entry.source).is_git:
            yield entry.source
