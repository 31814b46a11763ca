"""What the registry knows while it works: states, bundles read, bundles complete."""

import asyncio
import logging
import os
import posixpath
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.bundle_file import sourced_entries
from amplifier_foundation.paths.resolution import ResolvedSource, cut_fragment, parse_uri
from amplifier_foundation.sources.resolver import SimpleSourceResolver
from amplifier_foundation.sources.store import WorkerBatches
from amplifier_system.tasks import finished, start_task
from amplifier_system.urls import shown

from .bundle_reader import BundleReader, Reading
from .state import BundleState

logger = logging.getLogger(__name__)

IncludeSourceResolver = Callable[[str], str | None]


class Library:
    """Reads and registers bundles; each source is read once, and once only when several ask at the same time."""

    def __init__(
        self, sources: SimpleSourceResolver, states: dict[str, BundleState], well_known: Mapping[str, str] | None = None
    ) -> None:
        self.sources = sources
        self.states = states
        self.well_known = well_known or {}
        self.adopted: set[str] = set()
        """The well-known names that were registered because something refers to them."""
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

    def adopt(self, reference: str) -> None:
        """Register the well-known bundle that a reference means, if its name means nothing else here."""
        name = namespace_in(reference) or reference
        if name in self.well_known and name not in self.states:
            self.states[name] = BundleState(self.well_known[name], name)
            self.adopted.add(name)

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


T = TypeVar("T")


class SharedTasks(Generic[T]):
    """Runs work by key; while it runs, others who ask for the key wait for the same result or error.

    One caller's cancellation does not disturb the others; the work itself ends when no one waits for it any more, and
    the last one to give up waits until it has.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, tuple[asyncio.Task[T], set[object]]] = {}

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if key not in self._running:
            self._running[key] = start_task(work()), set()
        task, waiting = self._running[key]
        me = object()
        waiting.add(me)
        try:
            return await asyncio.shield(task)
        finally:
            waiting.discard(me)
            if not waiting or task.done():
                if self._running.get(key, (None,))[0] is task:
                    del self._running[key]
                task.cancel()
                await finished(task)  # a caller that is interrupted leaves nothing running


# From what stands under `includes` to the source that is loaded.


_SUFFIXES = ("", ".yaml", ".yml", ".md", "/bundle.yaml", "/bundle.md")
_BUNDLE_SUFFIXES = (".md", ".yaml", ".yml")


def include_texts(reading: Reading) -> list[str]:
    """Return the includes of a bundle as written; items of an unknown shape are reported and left out."""
    texts = []
    for item in reading.bundle.includes:
        text = item.get("bundle") if isinstance(item, dict) else item
        if text and (isinstance(item, dict) or isinstance(text, str)):
            texts.append(str(text))
        else:
            logger.warning("%s: include %r is ignored; write a source or {bundle: source}", shown(reading.uri), item)
    return texts


def namespace_in(text: str) -> str | None:
    """Return the namespace of an include `namespace:path`, `None` for any other."""
    if "://" in text or text.startswith(("git+", "./", "../", "/")):
        return None
    namespace, colon, _ = text.partition(":")
    return namespace if colon else None


def is_relative(text: str) -> bool:
    """True if an include is a path that counts from the including file."""
    return text.startswith(("./", "../"))


def resolve_include(text: str, reading: Reading, states: Mapping[str, BundleState]) -> str | None:
    """Return the source that an include means, `None` when its namespace is unknown or there is no such path.

    Looks for files, so it is called in a worker thread.
    """
    if is_relative(text):
        return _resolve_relative(text, reading)
    namespace = namespace_in(text)
    if namespace is None:
        return text
    state = states.get(namespace)
    return resolve_in_namespace(text.partition(":")[2], state) if state else None


def file_uri(path: Path) -> str:
    """Return the `file://` source of a path; only what would not be read back as it stands is encoded."""
    text = str(path)
    return f"file://{_encoded(text) if '#' in text else text}"


def subdirectory_uri(uri: str, path: str) -> str:
    """Return the source of a path inside the tree that a git source names, whatever path `uri` names itself."""
    base, _ = cut_fragment(uri)
    return base if path in ("", ".") else f"{base}#subdirectory={_encoded(path)}"


def _resolve_relative(text: str, reading: Reading) -> str | None:
    directory, tree = reading.bundle.base_path, reading.source.source_root
    assert directory is not None
    written, hash_sign, fragment = text, "", ""
    if not (directory / text).exists():
        written, hash_sign, fragment = text.partition("#")
        if not hash_sign or not (directory / written).exists():
            return None if reading.is_fetched else text  # it may be there from the working directory's point of view
    path = Path(os.path.realpath(directory / written))
    if reading.is_fetched and not path.is_relative_to(os.path.realpath(tree)):
        return None
    if not fragment and parse_uri(reading.uri).is_git and path.is_relative_to(tree):
        return subdirectory_uri(reading.uri, path.relative_to(tree).as_posix())
    return file_uri(path) + hash_sign + fragment


def resolve_in_namespace(path: str, state: BundleState) -> str | None:
    """Return the source of a path in a registered bundle, `None` when it has no such path. Looks for files."""
    is_git = parse_uri(state.uri).is_git
    if state.local_path is None:
        inside = posixpath.join(_own_directory(state.uri, is_file=None), path)
        return subdirectory_uri(state.uri, inside) if is_git else None
    place = Path(state.local_path)
    is_file = place.is_file()
    base = place.parent if is_file else place
    relative = path.lstrip("/")
    found = next((name for suffix in _SUFFIXES if (base / (name := relative + suffix)).exists()), None)
    if found is None:
        return None
    if is_git:
        inside = posixpath.join(_own_directory(state.uri, is_file=is_file), found)
        return subdirectory_uri(state.uri, posixpath.normpath(inside))
    return file_uri((base / found).resolve())


def _own_directory(uri: str, *, is_file: bool | None) -> str:
    """Return the directory, inside its tree, of the bundle that a git source names; `None`: tell by the suffix."""
    path = cut_fragment(uri)[1] or ""
    if is_file if is_file is not None else path.endswith(_BUNDLE_SUFFIXES):
        return posixpath.dirname(path)
    return path


def _encoded(path: str) -> str:
    return path.replace("%", "%25").replace("#", "%23").replace("&", "%26")


def is_local(uri: str) -> bool:
    """True if a source is a path on this machine."""
    return parse_uri(uri).is_file


def names_subpath(uri: str) -> bool:
    """True if a source names a path inside its tree."""
    return bool(cut_fragment(uri)[1])
