"""The tool `glob`: find files and directories by name."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from amplifier_core import ToolResult
from amplifier_kit.tools.effects import READ
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.paths import WorkingDir, resolve
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.runs import AnsweringTool

from .glob_pattern import GlobPattern, State, fits_from_right, is_plain, split_components
from .search_run import Announcement, GlobSettings, Root, SearchTimedOut, Watch, find_root, path_key
from .tree import Listing, Tree

logger = logging.getLogger(__name__)

_OUTSIDE = "Access denied: the pattern leads out of the paths that may be searched"


@dataclass(frozen=True, slots=True)
class _Match:
    relative: str
    is_directory: bool
    size: int
    mtime_ns: int


class GlobTool(AnsweringTool):
    name = "glob"
    effects = frozenset({READ})
    retry = "safe"
    description = (
        "Find files and directories by name, newest first. ** stands for any number of directories, {a,b} for "
        "alternatives; without type both files and directories are listed (type any). Dependency and build directories "
        "are skipped unless include_ignored is set. Results are limited. To search file contents use grep."
    )
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": 'What to find, for example "**/*.py" or "src/*.{ts,tsx}".'},
            "path": {"type": "string", "description": "Directory to look in. Default: the working directory."},
            "type": {
                "type": "string",
                "enum": ["file", "dir", "any"],
                "description": "Only files, only directories, or any (default).",
            },
            "exclude": {
                "type": "array",
                "items": {"type": "string"},
                "description": 'Leave out paths that end like this, for example "*_test.py" or "sub/*.py".',
            },
            "include_ignored": {"type": "boolean", "description": "Look into excluded directories as well."},
        },
        "required": ["pattern"],
    }

    def __init__(self, config: Mapping[str, Any] | None, coordinator: Any = None) -> None:
        self.coordinator = coordinator
        self.settings = GlobSettings.read(config)
        self._working_dir = WorkingDir(self.settings.common.working_dir, coordinator)

    async def answer(self, given: Any) -> ToolResult:
        given = read_input(self.name, self.input_schema, given, texts={"pattern": "Pattern is required"})
        pattern: str = given["pattern"]
        watch = Watch(self.settings.common.timeout_s)
        root, inner = await watch.work(lambda: self._start(pattern, given.get("path")))
        walk = _Walk(root, self._tree(given, root, watch), GlobPattern(inner), given, inner.endswith("/"))
        logger.debug("glob %s in %s", pattern[:200], root.path)
        ending = Announcement(self.coordinator, self.name, pattern, as_text(root.path))
        failed: SearchTimedOut | None = None
        try:
            try:
                await watch.work(walk.run)
                ending.success = True
            except SearchTimedOut as exc:
                failed, ending.timed_out = exc, True
            output = self._report(pattern, root, walk.matches)
            ending.total, ending.returned = output["total_files"], output["count"]
        finally:
            await ending.emit()
        if failed is None:
            return ToolResult(success=True, output=output)
        return ToolResult(success=False, output={**output, "partial": True}, error=failed.result().error)

    def _start(self, pattern: str, path: str | None) -> tuple[Root, str]:
        """Return where to begin, and the pattern from there."""
        root = find_root(self._working_dir, self.settings.common, path)
        if root.is_file:
            raise ToolFailure(f"Not a directory: {path}", "invalid_input")
        if not pattern.startswith("/"):
            return root, _without_parents(pattern)
        components = split_components(_without_parents(pattern))
        plain = next((index for index, one in enumerate(components[:-1]) if not is_plain(one)), len(components) - 1)
        base = Path("/", *components[:plain])
        is_inside = resolve(base).is_relative_to(root.real)
        if not is_inside and (root.rules.allowed is None or not root.may_read(resolve(base))):
            raise ToolFailure(_OUTSIDE, "access_denied")
        inner = "/".join(components[plain:]) + ("/" if pattern.endswith("/") else "")
        return find_root(self._working_dir, self.settings.common, str(base)), inner

    def _tree(self, given: dict[str, Any], root: Root, watch: Watch) -> Tree:
        include_ignored = given.get("include_ignored", False)
        return Tree(
            root=root.path,
            exclusions=frozenset() if include_ignored else self.settings.common.exclusions,
            watch=watch,
            skip_hidden=False,
            respect_ignore_files=self.settings.common.respect_gitignore and not include_ignored,
            is_denied=root.denies(),
        )

    def _report(self, pattern: str, root: Root, matches: list[_Match]) -> dict[str, Any]:
        matches.sort(key=lambda match: (-match.mtime_ns, path_key(match.relative)))
        shown = matches[: self.settings.max_results or None]
        output: dict[str, Any] = {
            "pattern": pattern,
            "base_path": as_text(root.path),
            "total_files": len(matches),
            "count": len(shown),
            "matches": [
                {
                    "path": root.report(match.relative),
                    "type": "dir" if match.is_directory else "file",
                    "size": None if match.is_directory else match.size,
                }
                for match in shown
            ],
        }
        return {**output, "results_capped": True} if len(matches) > len(shown) else output


class _Walk:
    """Goes down where the pattern may match; what it has found so far is in `matches`."""

    def __init__(
        self, root: Root, tree: Tree, pattern: GlobPattern, given: dict[str, Any], only_directories: bool
    ) -> None:
        self.matches: list[_Match] = []
        self._root, self._tree, self._pattern = root, tree, pattern
        self._wanted = "dir" if only_directories else given.get("type", "any")
        self._excluded = [pattern for pattern in given.get("exclude", ()) if pattern.strip("/.")]

    def run(self) -> None:
        if (root := self._tree.start()) is None:
            return
        waiting: list[tuple[Listing, frozenset[State]]] = [(root, self._pattern.start)]
        while waiting:
            listing, states = waiting.pop()
            waiting += self._visit(listing, states)

    def _visit(self, listing: Listing, states: frozenset[State]) -> Iterator[tuple[Listing, frozenset[State]]]:
        for entry in listing.others:
            if self._pattern.step(states, entry.name)[1] and not listing.ignores(entry.name):
                self._add(listing.path + entry.name, is_link=entry.is_symlink())
        for name in listing.directories:
            following, has_matched = self._pattern.step(states, name)
            if has_matched:
                self._add(listing.path + name, is_link=False)
            if following and (inner := self._tree.enter(listing, name)) is not None:
                yield inner, following

    def _add(self, relative: str, *, is_link: bool) -> None:
        path = self._root.path / relative
        if any(fits_from_right(pattern, relative) for pattern in self._excluded):
            return
        if is_link and not self._root.may_read(Path(os.path.realpath(path))):
            return
        try:
            found = path.stat()
        except OSError:
            return
        is_directory = path.is_dir()
        if self._wanted in ("any", "dir" if is_directory else "file"):
            self.matches.append(_Match(relative, is_directory, found.st_size, found.st_mtime_ns))


def _without_parents(pattern: str) -> str:
    """Return the pattern with `..` taken together with what comes before; one that leads out is refused."""
    is_absolute = pattern.startswith("/")
    components: list[str] = []
    for component in pattern.split("/"):
        if component == "..":
            if not components or components[-1] == "**":
                raise ToolFailure(_OUTSIDE, "access_denied")
            components.pop()
        elif component not in ("", "."):
            components.append(component)
    if re.search(r"(^|[/{,])\.\.([/},]|$)", "/".join(components)):
        raise ToolFailure(_OUTSIDE, "access_denied")
    return ("/" if is_absolute else "") + "/".join(components) + ("/" if pattern.endswith("/") else "")
