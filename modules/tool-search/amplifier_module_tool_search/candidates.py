"""The files that a search for text looks into."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .ignore_files import IgnoreRules
from .regular_file import NotSearchedError, is_binary, open_regular
from .search_run import Root, Watch
from .tree import Listing, Tree


@dataclass(slots=True)
class Candidates:
    """Decides which files below a root are searched; paths are relative to it."""

    root: Root
    tree: Tree
    watch: Watch
    max_file_size: int
    name_filter: re.Pattern[str] | None = None
    suffixes: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    ignored_directories: list[str] = field(default_factory=list)
    _rules: dict[str, IgnoreRules] = field(default_factory=dict)
    _prefix: str = field(init=False)
    _real_prefix: str = field(init=False)

    def __post_init__(self) -> None:
        self._prefix, self._real_prefix = (str(path).rstrip("/") + "/" for path in (self.root.path, self.root.real))

    def survey(self) -> list[str]:
        """Walk the tree, and return the symbolic links in it that lead to files; what else is in it can be asked for
        afterwards."""
        if self.root.is_file:
            return []
        found: list[str] = []
        for listing in self.tree.walk():
            self._rules[listing.path] = listing.rules
            self.ignored_directories += [listing.path + name for name in listing.ignored]
            found += self._links(listing)
        self.warnings += self.tree.warnings
        return found

    def accepts(self, relative: str) -> bool:
        """Say whether a regular file is one that the survey passed."""
        if self.root.is_file:
            return True
        directory, _, name = relative.rpartition("/")
        rules = self._rules.get(f"{directory}/" if directory else "")
        if rules is None or (self.tree.skip_hidden and name.startswith(".")) or self.tree.is_denied(relative):
            return False
        return self._has_wanted_name(relative) and not rules.ignores(relative, is_directory=False)

    def is_searched(self, relative: str) -> bool:
        """Say whether a file can be opened, and is one to search."""
        self.watch.check()
        descriptor = self._open(relative)
        if descriptor is None:
            return False
        os.close(descriptor)
        return True

    def open(self, files: Sequence[str], closing: ExitStack) -> dict[str, int]:
        """Return the descriptors of those files that are to be searched, checked where they really lie; one that
        cannot be read is noted. `closing` closes them."""
        descriptors: dict[str, int] = {}
        for relative in files:
            self.watch.check()
            descriptor = self._open(relative)
            if descriptor is not None:
                closing.callback(os.close, descriptor)
                descriptors[relative] = descriptor
        return descriptors

    def _open(self, relative: str) -> int | None:
        path = f"{self._prefix}{relative}" if relative else str(self.root.path)
        max_size = 0 if self.root.is_file else self.max_file_size
        try:
            descriptor = open_regular(path, max_size=max_size, may_read=self._reader(relative))
        except NotSearchedError:
            return None
        except OSError as exc:
            self.warnings.append(f"{path}: {exc.strerror}")
            return None
        if self.root.is_file or not is_binary(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def _reader(self, relative: str) -> Callable[[str], bool]:
        """Return what is asked about where an open file really lies; where the survey found it, it may be read."""
        expected = f"{self._real_prefix}{relative}" if relative else str(self.root.real)
        return lambda real: real == expected or self.root.may_read(Path(real))

    def _links(self, listing: Listing) -> Iterator[str]:
        for entry in listing.others:
            relative = listing.path + entry.name
            if not entry.is_symlink() or not self._has_wanted_name(relative) or listing.ignores(entry.name):
                continue
            if self._leads_to_searchable(entry):
                yield relative

    def _has_wanted_name(self, relative: str) -> bool:
        if self.suffixes and not relative.endswith(self.suffixes):
            return False
        return self.name_filter is None or self.name_filter.fullmatch(relative) is not None

    def _leads_to_searchable(self, entry: "os.DirEntry[str]") -> bool:
        try:
            return entry.is_file() and self.root.may_read(Path(os.path.realpath(entry.path)))
        except OSError:
            return False
