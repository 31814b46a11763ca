"""A directory tree as a search sees it: without what is denied, excluded, hidden or ignored."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .ignore_files import NO_RULES, IgnoreRules, rules_above
from .search_run import Watch


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory: the directories to go on with, everything else, and what the ignore files say there.

    `path` is relative to the root and ends with a slash unless it is empty.
    """

    path: str
    directories: list[str]
    others: "list[os.DirEntry[str]]"
    ignored: list[str]
    rules: IgnoreRules

    def ignores(self, name: str) -> bool:
        """Say whether a file in this directory is left out by an ignore file."""
        return self.rules.ignores(self.path + name, is_directory=False)


@dataclass(slots=True)
class Tree:
    """The tree below a root. Symbolic links to directories are entries like files: they are never followed.

    `is_denied` is asked about every entry, by its path relative to the root.
    """

    root: Path
    exclusions: frozenset[str]
    watch: Watch
    skip_hidden: bool
    respect_ignore_files: bool
    is_denied: Callable[[str], bool]
    warnings: list[str] = field(default_factory=list)

    def start(self) -> Listing | None:
        """List the root."""
        return self.open("", rules_above(Path(os.path.realpath(self.root))) if self.respect_ignore_files else NO_RULES)

    def enter(self, listing: Listing, name: str) -> Listing | None:
        """List a directory of a listing; one that cannot be read is noted and skipped."""
        return self.open(f"{listing.path}{name}/", listing.rules)

    def walk(self) -> Iterator[Listing]:
        """List the root and every directory below it."""
        if (root := self.start()) is None:
            return
        waiting = [root]
        while waiting:
            listing = waiting.pop()
            yield listing
            waiting += filter(None, (self.enter(listing, name) for name in listing.directories))

    def open(self, path: str, rules: IgnoreRules) -> Listing | None:
        self.watch.check()
        directory = self.root / path
        try:
            with os.scandir(directory) as found:
                entries = list(found)
        except OSError as exc:
            self.warnings.append(f"{directory}: {exc.strerror}")
            return None
        if self.respect_ignore_files:
            rules = rules.entered(directory, path.removesuffix("/"), {entry.name for entry in entries})
        listing = Listing(path, [], [], [], rules)
        for entry in entries:
            self.watch.check()
            self._place(entry, listing)
        return listing

    def _place(self, entry: "os.DirEntry[str]", listing: Listing) -> None:
        if (self.skip_hidden and entry.name.startswith(".")) or self.is_denied(listing.path + entry.name):
            return
        if not entry.is_dir(follow_symlinks=False):
            listing.others.append(entry)
        elif entry.name not in self.exclusions:
            is_ignored = listing.rules.ignores(listing.path + entry.name, is_directory=True)
            (listing.ignored if is_ignored else listing.directories).append(entry.name)
