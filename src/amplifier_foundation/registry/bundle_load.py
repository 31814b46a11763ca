"""One load: first everything that is included is read, at the same time; then it is composed, in order.

Reading never waits for another bundle's includes and composing does not wait at all, so bundles that include each other
cannot block: such an include is skipped where it closes the circle, the same one on every run.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.bundle_file import find_gaps
from amplifier_foundation.bundle.origins import tag_container
from amplifier_foundation.exceptions import BundleDependencyError, BundleValidationError
from amplifier_system.urls import shown

from .bundle_reader import Reading
from .library import IncludeSourceResolver, Library, include_texts, is_relative, namespace_in, resolve_include

logger = logging.getLogger(__name__)

MAX_BUNDLES = 1_000
MAX_DEPTH = 100


@dataclass(slots=True)
class _Include:
    """An include as written, and the source it means once that is known."""

    text: str
    source: str | None


@dataclass(slots=True)
class _Node:
    """A bundle that was read, with its includes."""

    reading: Reading
    includes: list[_Include]


class BundleLoad:
    """Loads one bundle with its includes.

    With `strict` an include that fails, a misspelled section, and an agent, context file or mentioned file that is
    missing are errors, at any depth; else they are logged and left out. An include that
    closes a circle is always logged and left out. `refresh` reads everything again, from refreshed sources.
    """

    def __init__(
        self, library: Library, override: IncludeSourceResolver | None, *, strict: bool, refresh: bool = False
    ) -> None:
        self._library = library
        self._override = override
        self._strict = strict
        self._refresh = refresh
        self._seen: set[str] = set()
        self._nodes: dict[str, _Node] = {}
        self._failures: dict[str, Exception] = {}
        self._composed: dict[str, Bundle] = {}
        self._in_a_circle: set[str] = set()
        self._left_out: list[str] = []
        self._absent: dict[str, Exception] = {}  # well-known bundles that cannot be had
        self.has_recorded_relations = False

    async def run(self, reference: str) -> Bundle:
        """Return the complete bundle of a registered name or a source.

        Raises:
            BundleError: it cannot be found or used, or an include cannot be satisfied.
        """
        key = self._library.key_of(reference)
        if not self._refresh and (loaded := self._library.loaded.get(key)):
            return loaded
        await self._read(reference)
        while late := self._find_late():
            self._note_failures(
                late, await asyncio.gather(*map(self._read_includes, late.values()), return_exceptions=True)
            )
        if failure := self._failures.get(key):
            raise failure
        if not self._refresh and (loaded := self._library.loaded.get(key)):  # another task was quicker
            return loaded
        bundle = self._compose(key, ())
        try:
            await self._report_gaps(bundle)
        except BundleValidationError:
            self._library.forget(key)
            raise
        bundle._left_out = tuple(self._left_out)
        self._library.loaded[key] = bundle
        return bundle

    def _report(self, reading: Reading) -> None:
        """Tell what is wrong with a file that can be used all the same."""
        for remark in reading.bundle._remarks:
            if self._strict:
                raise BundleValidationError(f"strict mode: {reading.place}: {remark}")
            logger.warning("%s: %s", reading.place, remark)

    async def _report_gaps(self, bundle: Bundle) -> None:
        """Report what a bundle names and cannot be found."""
        gaps = await asyncio.to_thread(find_gaps, bundle, is_complete=False)
        if gaps and self._strict:
            raise BundleValidationError(f"strict mode: bundle {bundle.name!r}: {'; '.join(gaps)}")
        for gap in gaps:
            logger.warning("bundle %r: %s", bundle.name, gap)
        bundle._reported_gaps = frozenset(gaps)

    async def _read(self, reference: str) -> None:
        """Read a bundle and everything it includes; what is read in another branch already is left to that one."""
        key = self._library.key_of(reference)
        if key in self._seen or self._is_settled(key):
            return
        if len(self._seen) >= MAX_BUNDLES:
            raise BundleDependencyError(f"{reference!r} is not loaded: more than {MAX_BUNDLES} bundles are included")
        self._seen.add(key)
        reading = await self._library.read(reference, refresh=self._refresh)
        self._report(reading)
        override = self._override or (lambda _: None)
        node = self._nodes[key] = _Node(reading, [_Include(text, override(text)) for text in include_texts(reading)])
        if node.includes:
            await self._read_includes(node)

    async def _read_includes(self, node: _Node) -> None:
        await self._resolve_includes(node)
        found = [include.source for include in node.includes if include.source is not None]
        sources = {self._library.key_of(source): source for source in found}
        self._note_failures(sources, await asyncio.gather(*map(self._read, sources.values()), return_exceptions=True))

    def _note_failures(self, keys: Iterable[str], outcomes: Iterable[object]) -> None:
        for key, outcome in zip(keys, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._failures[key] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _resolve_includes(self, node: _Node) -> None:
        """Find the sources of a bundle's includes, except for those whose namespace is not known yet."""
        includes = [include for include in node.includes if include.source is None]
        for include in includes:
            self._library.adopt(include.text)
        await self._place_namespaces(node, includes)
        states = self._library.states

        def resolve() -> list[str | None]:
            sought = (include.text for include in includes)
            return [
                None if namespace_in(t) in self._absent else resolve_include(t, node.reading, states) for t in sought
            ]

        needs_disk = any(is_relative(include.text) or namespace_in(include.text) for include in includes)
        found = await asyncio.to_thread(resolve) if needs_disk else resolve()
        for include, source in zip(includes, found, strict=True):
            state = states.get(namespace_in(include.text) or "")
            if source is None and state and state.name not in self._absent:
                raise BundleDependencyError(
                    f"Include resolution failed: {node.reading.uri} includes {include.text!r}, "
                    f"but {state.name!r} ({state.local_path or state.uri}) has no such path",
                    hint="correct the path, or load a version of that bundle which has it",
                )
            include.source = source

    async def _place_namespaces(self, node: _Node, includes: Iterable[_Include]) -> None:
        """Read the bundles whose namespaces are used here and whose directories are not known yet."""
        states = self._library.states
        namespaces = dict.fromkeys(filter(None, (namespace_in(include.text) for include in includes)))
        unplaced = [name for name in namespaces if name in states and not states[name].local_path]
        outcomes = await asyncio.gather(*map(self._library.read, unplaced), return_exceptions=True)
        for name, outcome in zip(unplaced, outcomes, strict=True):
            if isinstance(outcome, Exception) and name in self._library.adopted:
                self._absent[name] = outcome
            elif isinstance(outcome, Exception):
                raise BundleDependencyError(
                    f"{node.reading.uri}: namespace {name!r} failed to load from {states[name].uri}: {outcome}"
                ) from outcome
            elif isinstance(outcome, BaseException):
                raise outcome

    def _find_late(self) -> dict[str, _Node]:
        """Return the bundles with includes whose namespaces became known only after these were looked at."""
        return {
            key: node
            for key, node in self._nodes.items()
            if key not in self._failures
            and any(
                include.source is None
                and (name := namespace_in(include.text)) in self._library.states
                and name not in self._absent
                for include in node.includes
            )
        }

    def _is_settled(self, key: str) -> bool:
        return not self._refresh and key in self._library.free_of_circles

    def _compose(self, key: str, chain: tuple[str, ...]) -> Bundle:
        """Return a bundle laid over its includes; `chain` leads from the bundle that is loaded to this one."""
        if self._is_settled(key):
            return self._library.loaded[key]
        if key in self._composed:
            return self._composed[key]
        node, chain = self._nodes[key], (*chain, key)
        own = bundle = node.reading.bundle
        included = [part for include in node.includes if (part := self._get_included(node, include, chain))]
        if included:
            first, *rest = included
            bundle = first.compose(*rest, own)
            tag_container(bundle, own.namespace)
            self._library.relate(own, included)
            self.has_recorded_relations = True
        bundle._source_uri = node.reading.uri
        self._composed[key] = bundle
        if key not in self._in_a_circle:
            self._library.loaded[key] = bundle
            self._library.free_of_circles.add(key)
        return bundle

    def _get_included(self, node: _Node, include: _Include, chain: tuple[str, ...]) -> Bundle | None:
        """Return the complete bundle of an include, or `None` where it is left out."""
        cause: Exception | None
        if include.source is None:
            absent = self._absent.get(namespace_in(include.text) or "")
            cause = absent or BundleDependencyError(_why_unresolved(node, include))
        else:
            key = self._library.key_of(include.source)
            if self._closes_circle(key, chain):
                self._in_a_circle.update(chain)
                way = " → ".join((*chain, key))
                logger.warning("Circular Include Skipped: %r. Circular dependency detected: %s", include.text, way)
                return None
            cause = self._failures.get(key)
            if cause is None:
                try:
                    return self._compose_include(key, chain)
                except BundleDependencyError as error:
                    cause = error
        if self._strict:
            raise BundleDependencyError(
                f"strict mode: {node.reading.uri} includes {include.text!r}, which failed: {cause}"
            ) from cause
        uri, text = shown(node.reading.uri), shown(include.text)
        logger.warning("Include Failed (skipping): %s includes %r: %s", uri, text, cause)
        self._left_out.append(f"{uri} includes {text!r}, which is left out: {cause}")
        return None

    def _compose_include(self, key: str, chain: tuple[str, ...]) -> Bundle:
        if len(chain) > MAX_DEPTH:
            raise BundleDependencyError(f"{key} is included more than {MAX_DEPTH} levels deep")
        bundle = self._compose(key, chain)
        if key in self._in_a_circle:
            self._in_a_circle.update(chain)
        return bundle

    def _closes_circle(self, key: str, chain: tuple[str, ...]) -> bool:
        file = self._library.find_file(key)
        return key in chain or (file is not None and any(self._library.find_file(above) == file for above in chain))


def _why_unresolved(node: _Node, include: _Include) -> str:
    if is_relative(include.text):
        return f"{node.reading.uri} has no file {include.text!r}"
    return f"namespace {namespace_in(include.text)!r} is not registered"
