"""What git says of a directory, as text: branch, status and the latest commits."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from amplifier_kit.tools.processes import ProcessTree, reading

# Files of which a person wants to hear nothing, and those of which a few are enough; as in a .gitignore.
IGNORED = (
    *("node_modules/", ".venv/", "venv/", "__pycache__/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/"),
    *("dist/", "build/", "*.pyc", ".DS_Store", "*.egg-info/"),
)
LIMITED = ("*.lock", "package-lock.json", "*.min.js", "*.svg", "*.png", "*.jpg", "vendor/")

_TIMEOUT_S = 2.0
_NO_PROMPT = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
# A repository can name programs that git runs for it; none of them is needed here.
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")


@dataclass(frozen=True, slots=True)
class GitOptions:
    """What is asked of git, and how much of its answer is shown."""

    status: bool = True
    branch: bool = True
    main_branch: bool = True
    commits: int = 5
    untracked: bool = True
    max_untracked: int = 20
    max_tracked: int = 50
    max_lines: int = 100
    filters_paths: bool = True
    ignored: tuple[str, ...] = IGNORED
    limited: tuple[str, ...] = LIMITED
    limited_most: int = 10
    shows_summary: bool = True


async def is_repository(directory: Path) -> bool:
    """Say whether a directory lies in a repository, without starting git where there is none."""
    return await asyncio.to_thread(lambda: any((each / ".git").exists() for each in (directory, *directory.parents)))


async def git_text(directory: Path, options: GitOptions) -> str:
    """Return what is shown of a repository, asked for all at once."""
    untracked = "normal" if options.untracked else "no"
    questions: dict[str, tuple[str, ...]] = {}
    if options.branch:
        questions["branch"] = ("branch", "--show-current")
    if options.main_branch:
        questions["main"] = ("for-each-ref", "--format=%(refname:short)", "refs/heads/main", "refs/heads/master")
    if options.status:
        questions["status"] = ("status", "--porcelain", f"--untracked-files={untracked}")
    if options.commits:
        questions["commits"] = ("log", "--oneline", "--no-decorate", f"-{options.commits}")
    answers = await asyncio.gather(*(_ask(directory, *question) for question in questions.values()))
    said = {name: answer for name, answer in zip(questions, answers, strict=True) if answer is not None}
    parts: list[str] = []
    if branch := said.get("branch", "").strip():
        parts.append(f"Current branch: {branch}")
    if main := said.get("main", "").split():
        parts.append(f"Main branch: {main[0]}")
    if "status" in said:
        parts.append(f"Status:\n{shown_status(said['status'], options) or '(clean)'}")
    if commits := said.get("commits", "").strip():
        parts.append(f"Recent commits:\n{commits}")
    return "\n\n".join(parts)


def shown_status(porcelain: str, options: GitOptions) -> str:
    """Return the lines of a status that are shown, with a word about those that are not."""
    tracked: list[str] = []
    untracked: list[str] = []
    hidden = limited = 0
    for line in porcelain.splitlines():
        path = line[3:].rpartition(" -> ")[2].strip('"')
        if options.filters_paths and matches(path, options.ignored):
            hidden += 1
            continue
        if options.filters_paths and matches(path, options.limited):
            limited += 1
            if limited > options.limited_most:
                hidden += 1
                continue
        (untracked if line.startswith("??") else tracked).append(line)
    shown = [
        *_at_most(tracked, options.max_tracked, "changed"),
        *_at_most(untracked, options.max_untracked, "untracked"),
    ]
    if len(shown) > options.max_lines:
        shown = [*shown[: options.max_lines], f"… {len(shown) - options.max_lines} more lines"]
    if hidden and options.shows_summary:
        shown.append(f"({hidden} generated or vendored files are left out)")
    return "\n".join(shown)


def _at_most(lines: Sequence[str], most: int, kind: str) -> list[str]:
    return [*lines[:most], *([f"… {len(lines) - most} more {kind} files"] if len(lines) > most else [])]


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Say whether a pattern of a .gitignore means a path: `env/` is a directory of that name, `*.pyc` a file anywhere.

    A pattern with a slash before its end counts from the root of the repository.
    """
    return any(_matcher(pattern).match(path) for pattern in patterns)


_matchers: dict[str, re.Pattern[str]] = {}


def _matcher(pattern: str) -> re.Pattern[str]:
    found = _matchers.get(pattern)
    if found is None:
        is_directory = pattern.endswith(("/", "/**"))
        body = pattern.removesuffix("/**").strip("/")
        is_rooted = "/" in pattern.removesuffix("/**").rstrip("/")
        parts = [_part(part) for part in body.split("/")]
        head = "" if is_rooted else "(?:.*/)?"
        tail = "/.*|/" if is_directory else "|/.*"
        found = _matchers[pattern] = re.compile(f"{head}{'/'.join(parts)}(?:{tail})$")
    return found


def _part(part: str) -> str:
    if part == "**":
        return ".*"
    inner = translate(part).removeprefix("(?s:").rpartition(")")[0]
    return inner.replace(".*", "[^/]*")


async def _ask(directory: Path, *question: str) -> str | None:
    """Return what git answers within two seconds, None where it does not."""
    command = ("git", *_HARMLESS, "-C", str(directory), *question)
    environment = {**os.environ, **_NO_PROMPT}
    nothing = asyncio.subprocess.DEVNULL
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async with await ProcessTree.start(command, environment=environment, stderr=nothing) as git:
                async with reading(git.stdout) as stream:
                    answer = await stream.read()
                is_answered = await git.wait() == 0
    except (OSError, TimeoutError):
        return None
    return answer.decode("utf-8", "replace") if is_answered else None
