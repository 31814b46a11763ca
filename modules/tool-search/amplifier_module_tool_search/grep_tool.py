"""The tool `grep`: find text in files."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from amplifier_core import ToolResult
from amplifier_kit.tools.effects import READ
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.paths import WorkingDir
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.runs import AnsweringTool

from .glob_pattern import expand_braces, file_filter
from .grep_report import Shape, build_report
from .matches import Candidates, Matches
from .ripgrep import InvalidPatternError, Query, Ripgrep, find_ripgrep, not_startable
from .search_run import Announcement, GrepSettings, Root, SearchTimedOut, Watch, find_root, path_key
from .tree import Tree

logger = logging.getLogger(__name__)

_NUMBERS = ("-A", "-B", "-C", "head_limit", "offset")


class GrepTool(AnsweringTool):
    name = "grep"
    effects = frozenset({READ})
    retry = "safe"
    description = (
        "Search file contents with a regular expression in ripgrep's syntax: no look-around, no backreferences, and a "
        "literal brace is written \\{. By default it lists the files that match; "
        'output_mode "content" shows the lines, "count" counts them. Hidden, ignored and binary files and dependency '
        "directories are skipped unless include_ignored is set. Results are limited: next_offset says where to go on. "
        "To find files by name use glob; to read a file use a file tool."
    )
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "The regular expression to search for."},
            "path": {"type": "string", "description": "File or directory to search. Default: the working directory."},
            "output_mode": {
                "type": "string",
                "enum": ["content", "files_with_matches", "count"],
                "description": "Matching lines, matching files (default), or matches per file.",
            },
            "-i": {"type": "boolean", "description": "Ignore case."},
            "-n": {"type": "boolean", "description": "Give line numbers with content. Default true."},
            "-A": {"type": "integer", "description": "Lines of context after each match, with content."},
            "-B": {"type": "integer", "description": "Lines of context before each match, with content."},
            "-C": {"type": "integer", "description": "Lines of context around each match; overrides -A and -B."},
            "glob": {
                "type": "string",
                "description": 'Only files like this, "*.py" at any depth or "src/**/*.{ts,tsx}" from the path.',
            },
            "type": {"type": "string", "description": "Only files of this type, for example py, ts, rust, md."},
            "multiline": {"type": "boolean", "description": "Match across lines; . matches line ends as well."},
            "head_limit": {
                "type": "integer",
                "description": "How many results to return, 0 for all. Default: 500 lines, or 200 files or counts.",
            },
            "offset": {"type": "integer", "description": "How many results to pass over. Default 0."},
            "include_ignored": {
                "type": "boolean",
                "description": "Search hidden, ignored and excluded files and directories as well.",
            },
        },
        "required": ["pattern"],
    }

    def __init__(self, config: Mapping[str, Any] | None, coordinator: Any = None) -> None:
        self.coordinator = coordinator
        self.settings = GrepSettings.read(config)
        self._working_dir = WorkingDir(self.settings.common.working_dir, coordinator)

    async def answer(self, given: Any) -> ToolResult:
        given = read_input(self.name, self.input_schema, given, texts={"pattern": "Pattern is required"})
        request = _Request(given)
        watch = Watch(self.settings.common.timeout_s)
        root = await watch.work(lambda: find_root(self._working_dir, self.settings.common, given.get("path")))
        logger.debug("grep %s in %s", request.pattern[:200], root.path)
        ending = Announcement(self.coordinator, self.name, request.pattern, as_text(root.path))
        ending.engine = "ripgrep"
        try:
            output = await self._search(request, root, watch)
        except InvalidPatternError:
            raise
        except BaseException as exc:
            ending.timed_out = isinstance(exc, SearchTimedOut)
            await ending.emit()
            raise
        ending.success = True
        ending.total, ending.returned = output["total_matches"], output["matches_count"]
        await ending.emit()
        return ToolResult(success=True, output=output)

    async def _search(self, request: "_Request", root: Root, watch: Watch) -> dict[str, Any]:
        candidates = request.candidates(self.settings, root, watch)
        program = await watch.work(find_ripgrep)
        if program is None:
            raise not_startable("there is no rg")
        ripgrep = Ripgrep(program, root.policy.environment(), watch)
        matches = Matches(candidates, request.query, ripgrep, request.name_globs)
        counts = await matches.counts(only_whether=request.mode == "files_with_matches")
        counts.sort(key=lambda found: path_key(found[0]))
        report = await build_report(counts, matches, request.shape(self.settings))
        warnings = list(dict.fromkeys(map(as_text, candidates.warnings)))
        if warnings and not counts:
            raise ToolFailure("\n".join(warnings), "io_error")
        output = {"pattern": request.pattern, "output_mode": request.mode, **report}
        return {**output, "warnings": warnings} if warnings else output


class _Request:
    """What the model asks for; raises `ToolFailure` for what cannot be searched for."""

    def __init__(self, given: dict[str, Any]) -> None:
        for key in _NUMBERS:
            if given.get(key, 0) < 0:
                raise ToolFailure(f"grep: {key!r} must not be negative, got {given[key]}", "invalid_input")
        self._given = given
        self.pattern: str = given["pattern"]
        self.mode: str = given.get("output_mode", "files_with_matches")
        self._glob: str | None = given.get("glob") or None
        if self._glob is not None and leaves_root(self._glob):
            raise ToolFailure("Access denied: the glob leads out of the searched path", "access_denied")
        self._suffixes = suffixes_of(given["type"]) if given.get("type") else ()
        self.query = Query(self.pattern, given.get("-i", False), given.get("multiline", False))

    @property
    def name_globs(self) -> list[str]:
        """Patterns of which every wanted file matches one by its name."""
        if self._glob is not None and "/" not in self._glob:
            return expand_braces(self._glob)
        return [f"*{suffix}" for suffix in self._suffixes]

    def shape(self, settings: GrepSettings) -> Shape:
        given = self._given
        return Shape(
            mode=self.mode,
            offset=given.get("offset", 0),
            limit=given.get("head_limit", settings.default_limits[self.mode]),
            has_numbers=given.get("-n", True),
            before=given.get("-C", given.get("-B", 0)),
            after=given.get("-C", given.get("-A", 0)),
            max_line_chars=settings.max_line_chars,
            max_result_bytes=settings.max_result_bytes,
        )

    def candidates(self, settings: GrepSettings, root: Root, watch: Watch) -> Candidates:
        include_ignored = self._given.get("include_ignored", False)
        return Candidates(
            root=root,
            tree=Tree(
                root=root.path,
                exclusions=frozenset() if include_ignored else settings.common.exclusions,
                watch=watch,
                skip_hidden=not include_ignored,
                respect_ignore_files=settings.common.respect_gitignore and not include_ignored,
                is_denied=root.denies(),
            ),
            watch=watch,
            max_file_size=settings.max_file_size,
            name_filter=None if self._glob is None else file_filter(self._glob),
            suffixes=self._suffixes,
        )


def leaves_root(pattern: str) -> bool:
    """True if a pattern is absolute or goes up."""
    return any(one.startswith("/") or ".." in one.split("/") for one in expand_braces(pattern))


SUFFIXES: dict[str, tuple[str, ...]] = {
    "c": (".c", ".h"),
    "cpp": (".cpp", ".cc", ".cxx", ".c++", ".hpp", ".hh", ".hxx", ".h++", ".h", ".inl"),
    "cs": (".cs",),
    "css": (".css", ".scss"),
    "go": (".go",),
    "h": (".h", ".hh", ".hpp"),
    "hpp": (".hpp", ".hh", ".hxx", ".h++"),
    "html": (".html", ".htm"),
    "java": (".java",),
    "js": (".js", ".jsx", ".mjs", ".cjs"),
    "json": (".json",),
    "lua": (".lua",),
    "md": (".md", ".markdown", ".mdx"),
    "php": (".php", ".phtml"),
    "py": (".py", ".pyi"),
    "rb": (".rb", ".gemspec", ".rake"),
    "rust": (".rs",),
    "sh": (".sh", ".bash", ".zsh", ".ksh"),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "ts": (".ts", ".tsx", ".mts", ".cts"),
    "txt": (".txt",),
    "xml": (".xml", ".xsd", ".xsl", ".xslt", ".svg"),
    "yaml": (".yaml", ".yml"),
}
ALIASES = {
    "typescript": "ts",
    "javascript": "js",
    "python": "py",
    "ruby": "rb",
    "markdown": "md",
    "shell": "sh",
    "bash": "sh",
    "csharp": "cs",
    "c#": "cs",
    "c++": "cpp",
    "cplusplus": "cpp",
    "golang": "go",
    "rs": "rust",
    "yml": "yaml",
    "tsx": "ts",
    "jsx": "js",
}


def suffixes_of(file_type: str) -> tuple[str, ...]:
    """Return the endings of a type or one of its other names; raises `ToolFailure` for an unknown one."""
    name = file_type.lower()
    suffixes = SUFFIXES.get(ALIASES.get(name, name))
    if suffixes is None:
        message = f"Unrecognized file type: '{file_type}'. Valid types: {', '.join(SUFFIXES)}"
        raise ToolFailure(message, "invalid_input")
    return suffixes
