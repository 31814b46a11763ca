"""Which files of a tree count: the `.gitignore` files in it and above it, read as plain files, never through git."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from .ignore_patterns import Pattern, parse_patterns

IGNORE_FILE = ".gitignore"
REPOSITORY = ".git"
LARGEST_FILE = 1024 * 1024  # bytes of an ignore file; a larger one is not read


@dataclass(frozen=True)
class IgnoreFile:
    """One file of patterns: `base` is the directory it lies in, `above` the way from there down to the root if it lies
    outside; one of them is empty."""

    base: str
    above: str
    text: str

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        return parse_patterns(self.text)

    def verdict(self, names: list[str], *, is_directory: bool) -> bool | None:
        """Say whether a path is ignored, None when no pattern is about it; the last one that fits decides."""
        depth = self.base.count("/") + 1 if self.base else 0
        names = self.above.split("/") + names if self.above else names[depth:]
        for pattern in reversed(self.patterns):
            if pattern.matches(names, is_directory=is_directory):
                return not pattern.is_negated
        return None


@dataclass(frozen=True)
class IgnoreChain:
    """The files that decide about what is in one directory, the nearest last."""

    files: tuple[IgnoreFile, ...] = ()

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Say whether a path is ignored whose directory is not."""
        names = path.split("/")
        if names[-1].lower() == REPOSITORY:
            return True
        verdicts = (file.verdict(names, is_directory=is_directory) for file in reversed(self.files))
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def with_file(self, file: IgnoreFile) -> IgnoreChain:
        return IgnoreChain((*self.files, file))

    @cached_property
    def fingerprint(self) -> str:
        """What changes when anything of the chain does."""
        digest = hashlib.sha1(usedforsecurity=False)
        for file in self.files:
            for part in (file.base, file.above, file.text):
                digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
        return digest.hexdigest()


@dataclass(frozen=True)
class IgnoreRules:
    """All ignore files of a tree at one moment, so that later it can be said what was not looked at."""

    outer: IgnoreChain = IgnoreChain()
    inner: Mapping[str, IgnoreFile] = field(default_factory=dict)
    _chains: dict[str, IgnoreChain | None] = field(default_factory=dict, compare=False, repr=False)

    def ignores(self, path: str) -> bool:
        """Say whether a path, or a directory above it, was ignored. A path may have been a directory itself."""
        chain = self._chain_in(path.rpartition("/")[0])
        if chain is None:
            return True
        return chain.ignores(path, is_directory=True) or chain.ignores(path, is_directory=False)

    def _chain_in(self, folder: str) -> IgnoreChain | None:
        """Return the files that decide about what is in a directory, None when it is ignored itself."""
        if folder in self._chains:
            return self._chains[folder]
        chain: IgnoreChain | None = self.outer
        names = folder.split("/") if folder else []
        for depth in range(len(names) + 1):
            here = "/".join(names[:depth])
            if here not in self._chains:
                if chain is not None and here and chain.ignores(here, is_directory=True):
                    chain = None
                elif chain is not None and here in self.inner:
                    chain = chain.with_file(self.inner[here])
                self._chains[here] = chain
            chain = self._chains[here]
        return chain

    def to_json(self) -> dict[str, Any]:
        outer = [[file.above, file.text] for file in self.outer.files]
        return {"outer": outer, "inner": {base: file.text for base, file in self.inner.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> IgnoreRules:
        outer = IgnoreChain(tuple(IgnoreFile("", above, text) for above, text in value["outer"]))
        return cls(outer, {base: IgnoreFile(base, "", text) for base, text in value["inner"].items()})


def read_outer_rules(root: Path) -> IgnoreChain:
    """Return what the repository around a directory says about it: the ignore files above it, and `info/exclude`.

    A directory that the repository ignores has been chosen in spite of that, and none of it counts there.
    """
    repository = next((each for each, mark in _marks(root) if os.path.exists(mark)), None)  # noqa: PTH110 - every turn
    if repository is None:
        return IgnoreChain()
    exclude = _read(repository / REPOSITORY / "info" / "exclude")
    above = [each for each in reversed(root.parents) if each.is_relative_to(repository)]
    texts = {each: text for each in above if (text := _read(each / IGNORE_FILE))}
    if root != repository:
        first = IgnoreChain((IgnoreFile("", "", exclude),))
        inner = {base: IgnoreFile(base, "", text) for each, text in texts.items() for base in [_way(repository, each)]}
        rules = IgnoreRules(first, inner)
        if rules.ignores(_way(repository, root)):
            return IgnoreChain()
    files = [(repository, exclude), *texts.items()]
    return IgnoreChain(tuple(IgnoreFile("", _way(each, root), text) for each, text in files if text))


@lru_cache
def _marks(root: Path) -> tuple[tuple[Path, str], ...]:
    """Return a directory and those above it, each with what makes it a repository."""
    return tuple((each, str(each / REPOSITORY)) for each in (root, *root.parents))


def _way(start: Path, end: Path) -> str:
    """Return the path from a directory down to another, empty when they are the same."""
    return "" if start == end else end.relative_to(start).as_posix()


def _read(file: Path) -> str:
    """Return the text of an ignore file, nothing when it is not a plain file that can be read."""
    try:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > LARGEST_FILE:
            return ""
        return file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
