"""The files that a search for text looks into."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from .ignore_files import IgnoreRules
from .line_matcher import LineMatcher
from .search_run import Root, Watch
from .text_files import BINARY_PROBE_BYTES, NotSearchedError, decode, is_binary, read_regular
from .tree import Listing, Tree

Counts = list[tuple[str, int]]  # relative path and number of matches of each file that has any


@dataclass(slots=True)
class Candidates:
    """Decides which files below a root are searched, and counts what is found in them; paths are relative to it."""

    root: Root
    tree: Tree
    matcher: LineMatcher
    watch: Watch
    max_file_size: int
    name_filter: re.Pattern[str] | None = None
    suffixes: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    ignored_directories: list[str] = field(default_factory=list)
    _rules: dict[str, IgnoreRules] = field(default_factory=dict)

    def survey(self, *, only_links: bool = False) -> list[str]:
        """Walk the tree and return its files, or only those that are symbolic links."""
        if self.root.is_file:
            return [""]
        found: list[str] = []
        for listing in self.tree.walk():
            self._rules[listing.path] = listing.rules
            self.ignored_directories += [listing.path + name for name in listing.ignored]
            found += self._files(listing, only_links=only_links)
        self.warnings += self.tree.warnings
        return found

    def accepts(self, relative: str) -> bool:
        """Say whether a regular file would have been found by a survey that was made for links only."""
        if self.root.is_file:
            return True
        directory, _, name = relative.rpartition("/")
        rules = self._rules.get(f"{directory}/" if directory else "")
        if rules is None or (self.tree.skip_hidden and name.startswith(".")):
            return False
        return self._has_wanted_name(relative) and not rules.ignores(relative, is_directory=False)

    def counts(self, files: list[str], *, only_whether: bool) -> Counts:
        """Return how often the pattern matches in each file; 1 is enough when only the files are asked for."""
        found = []
        for relative in files:
            self.watch.check()
            text = self.text_of(relative)
            if text is None:
                continue
            spans = self.matcher.spans(text, self.watch)
            if count := sum(1 for _ in islice(spans, 1 if only_whether else None)):
                found.append((relative, count))
        return found

    def text_of(self, relative: str) -> str | None:
        """Return the text of a file, None when it is not one to search; one that cannot be read is noted."""
        data = self._read(relative)
        return None if data is None or (not self.root.is_file and is_binary(data)) else decode(data)

    def is_text(self, relative: str) -> bool:
        """Say whether a file is one to search, by its beginning."""
        data = self._read(relative, limit=BINARY_PROBE_BYTES)
        return data is not None and (self.root.is_file or not is_binary(data))

    def _read(self, relative: str, *, limit: int = -1) -> bytes | None:
        path = self.root.path / relative
        try:
            return read_regular(
                path,
                limit=limit,
                max_size=0 if self.root.is_file else self.max_file_size,
                may_read=None if self.root.rules.allowed is None else self.root.may_read,
            )
        except NotSearchedError:
            return None
        except OSError as exc:
            self.warnings.append(f"{path}: {exc.strerror}")
            return None

    def _files(self, listing: Listing, *, only_links: bool) -> Iterator[str]:
        for entry in listing.others:
            is_link = entry.is_symlink()
            if only_links and not is_link:
                continue
            relative = listing.path + entry.name
            if not self._has_wanted_name(relative) or listing.ignores(entry.name):
                continue
            if self._leads_to_searchable(entry) if is_link else entry.is_file(follow_symlinks=False):
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
