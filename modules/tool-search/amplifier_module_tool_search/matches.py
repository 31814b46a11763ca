"""Which files match and where: what ripgrep says about the candidates, and nothing about any other file."""

import json
import os
import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from amplifier_kit.tools.input import ToolFailure

from .ripgrep import Answer, Query, Ripgrep
from .search_run import Root, Watch
from .tree import IgnoreRules, Listing, NotSearchedError, Tree, is_binary, open_regular


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
        """True if a regular file is one that the survey passed."""
        if self.root.is_file:
            return True
        directory, _, name = relative.rpartition("/")
        rules = self._rules.get(f"{directory}/" if directory else "")
        if rules is None or (self.tree.skip_hidden and name.startswith(".")) or self.tree.is_denied(relative):
            return False
        return self._has_wanted_name(relative) and not rules.ignores(relative, is_directory=False)

    def is_searched(self, relative: str) -> bool:
        """True if a file can be opened, and is one to search."""
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


T = TypeVar("T")
Counts = list[tuple[str, int]]  # relative path and number of matches of each file that has any
Span = tuple[int, int]  # first and last line of a match, counted from 1

_BATCH = 64  # files that are open at the same time

_SAFE_GLOB = re.compile(r"[\w.*+-]+", re.ASCII)  # one that means the same to ripgrep
_SAFE_PATH = re.compile(r"[\w./-]+", re.ASCII)
_SPECIAL = re.compile(r"([^\w./-])", re.ASCII)
_MAX_HINTS = 500
_FILE_PROBLEM = re.compile(r"(?:rg: )?(.*) \(os error \d+\)")
_MATCH = b'{"type":"match"'
_CUT = "more matched than a search can go through; narrow the path or the pattern"


@dataclass(frozen=True, slots=True)
class Matches:
    """What ripgrep finds in the candidates.

    It walks a superset of them by itself; what it reports beyond is taken out again. Symbolic links, and files whose
    lines are to be shown, it is given as open descriptors, so that it reads exactly what was checked.
    """

    candidates: Candidates
    query: Query
    ripgrep: Ripgrep
    globs: Sequence[str]  # every wanted file matches one of these by its name

    async def counts(self, *, only_whether: bool) -> Counts:
        """Return how often each file matches; 1 is enough when only the files are asked for."""
        candidates, root = self.candidates, self.candidates.root
        links = await candidates.watch.work(candidates.survey)
        options = [self._counting(only_whether), *self._narrowing()]
        cwd = root.real.parent if root.is_file else root.real
        answer = await self.ripgrep.ask(self.query, options, [str(root.real)], cwd=cwd)

        def accepted() -> Counts:
            reported = ((_relative(path, root.real), count) for path, count in _counts(answer, not only_whether))
            return [found for found in reported if candidates.accepts(found[0]) and candidates.is_searched(found[0])]

        found = await candidates.watch.work(accepted)
        self._note(answer, has_results=bool(found))
        for batch in batches(links):
            found += await self._counts_of(batch, only_whether=only_whether)
        return found

    async def spans(
        self, files: Mapping[str, int], counts: Mapping[str, int], max_count: int | None
    ) -> dict[str, list[Span]]:
        """Return where open files match, in each the first `max_count` places at least, if it was counted so often."""
        found = await self._spans(files, max_count)
        if self.query.multiline and max_count:  # then ripgrep gives up too early where a line's begin or end matches
            short = {one: files[one] for one in files if len(found.get(one, ())) < min(max_count, counts[one])}
            if short:
                found |= await self._spans(short, None)
        return {relative: found[relative] for relative in files if relative in found}

    async def _spans(self, files: Mapping[str, int], max_count: int | None) -> dict[str, list[Span]]:
        options = ["--threads=1", *(["--json"] if self.query.multiline else ["--line-number", "--max-columns=1"])]
        options += [f"--max-count={max_count}"] if max_count else []
        answer = await self._ask_about(files, options)
        read = _multiline_spans if self.query.multiline else _line_spans
        found = await self.candidates.watch.work(lambda: read(answer))
        self._note(answer, has_results=bool(found))
        return {relative: found[descriptor] for relative, descriptor in files.items() if descriptor in found}

    async def _counts_of(self, links: Sequence[str], *, only_whether: bool) -> Counts:
        with ExitStack() as closing:
            files = await self.candidates.watch.work(lambda: self.candidates.open(links, closing))
            if not files:
                return []
            answer = await self._ask_about(files, [self._counting(only_whether)])
            found = {_descriptor(path): count for path, count in _counts(answer, not only_whether)}
            self._note(answer, has_results=bool(found))
            return [(link, found[descriptor]) for link, descriptor in files.items() if descriptor in found]

    def _counting(self, only_whether: bool) -> str:
        if only_whether:
            return "--files-with-matches"
        return "--count-matches" if self.query.multiline else "--count"

    async def _ask_about(self, files: Mapping[str, int], options: Sequence[str]) -> Answer:
        descriptors = list(files.values())
        for descriptor in descriptors:  # /dev/fd/N can share its place in the file with the descriptor
            os.lseek(descriptor, 0, os.SEEK_SET)
        paths = [f"/dev/fd/{descriptor}" for descriptor in descriptors]
        return await self.ripgrep.ask(self.query, options, paths, cwd=Path("/"), descriptors=descriptors)

    def _note(self, answer: Answer, *, has_results: bool) -> None:
        """Keep what went wrong as warnings; what went wrong as a whole is a failure when nothing was found."""
        warnings = self.candidates.warnings
        data = {problem: _FILE_PROBLEM.fullmatch(problem) for problem in answer.problems}
        unexpected = [problem for problem, match in data.items() if match is None]
        if unexpected and not has_results:
            raise ToolFailure("\n".join(unexpected), "io_error")
        warnings += [*unexpected, *(match[1] for match in data.values() if match), *([_CUT] if answer.is_cut else [])]

    def _narrowing(self) -> list[str]:
        """Return the options that keep ripgrep away from what would be taken out again, and from what is denied."""
        candidates, tree = self.candidates, self.candidates.tree
        if candidates.root.is_file:
            return []
        options = [f"--max-filesize={candidates.max_file_size}"] if candidates.max_file_size else []
        options += [] if tree.skip_hidden else ["--hidden"]
        if self.globs and all(_SAFE_GLOB.fullmatch(glob) for glob in self.globs):
            options += [f"--glob={glob}" for glob in self.globs]
        closed = [f"{name}/" for name in sorted(tree.exclusions)]
        closed += [f"/{path}/" for path in candidates.ignored_directories[:_MAX_HINTS]]
        options += [f"--glob=!{path}" for path in closed if _SAFE_PATH.fullmatch(path)]
        if (denied := candidates.root.denied()) is not None:
            options += [f"--iglob=!/{_escaped(place)}" for place in sorted(denied.places)]
            options += [f"--iglob=!{_escaped(name)}" for name in sorted(denied.names)]
        return options


def batches(files: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield files in groups that can be open at the same time."""
    return (files[start : start + _BATCH] for start in range(0, len(files), _BATCH))


def _escaped(path: str) -> str:
    return _SPECIAL.sub(r"\\\1", path)


def _relative(path: bytes, root: Path) -> str:
    """Return a path that ripgrep reported relative to the root, empty for the root itself."""
    return os.fsdecode(path).removeprefix(str(root)).removeprefix("/")


def _descriptor(path: bytes) -> int:
    return int(path.rpartition(b"/")[2])


def _counts(answer: Answer, has_counts: bool) -> Iterator[tuple[bytes, int]]:
    """Yield paths and counts from `path NUL count LF`, or from `path NUL`; what is cut off at the end is left out."""
    output, position = answer.output, 0
    while (end := output.find(b"\0", position)) >= 0:
        path = output[position:end]
        position, count = end + 1, 1
        if has_counts:
            line_end = output.find(b"\n", position)
            if line_end < 0:
                return
            count = int(output[position:line_end])
            position = line_end + 1
        yield path, count


def _line_spans(answer: Answer) -> dict[int, list[Span]]:
    """Read `path NUL number:text LF`, by the descriptors in the paths."""
    spans = defaultdict[int, list[Span]](list)
    for record in answer.output.split(b"\n")[:-1]:
        path, _, line = record.partition(b"\0")
        number = int(line.partition(b":")[0])
        spans[_descriptor(path)].append((number, number))
    return spans


def _multiline_spans(answer: Answer) -> dict[int, list[Span]]:
    """Read JSON, a message for consecutive lines with all their matches, by the descriptors in the paths."""
    spans = defaultdict[int, list[Span]](list)
    for record in answer.output.split(b"\n")[:-1]:
        if not record.startswith(_MATCH):
            continue
        data = json.loads(record)["data"]
        spans[_descriptor(data["path"]["text"].encode())] += _spans_in(data)
    return spans


def _spans_in(data: dict[str, Any]) -> Iterator[Span]:
    lines = data["lines"]
    text: bytes = lines["text"].encode() if "text" in lines else b64decode(lines["bytes"])
    number, counted = data["line_number"], 0
    if not data["submatches"]:  # an empty match at the end is not among them
        yield number, number
    for match in data["submatches"]:
        start, end = match["start"], match["end"]
        number += text.count(b"\n", counted, start)
        counted = start
        yield number, number + text.count(b"\n", start, max(end - 1, start))
