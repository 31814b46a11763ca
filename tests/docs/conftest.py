"""Runs the documentation: what a page shows is what happens.

A page is read from top to bottom, in a folder of its own in which `examples` is the repository's:

- a block with `file=<path>` after its language is written to that file; the folder is also the home directory, `~`,
- a `python` block is executed, with `await` at the top level; blocks of one page share their names,
- an `output` block is what the block before it printed,
- a `console` block holds commands after `$`, each followed by what it prints,
- a `toml` or `json` block can be parsed.

Session ids, durations and temporary folders differ from run to run; every other character counts. Anything else is
prose.
"""

import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plain_pytest
import pytest
import warm_python

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(`{3,})([^`\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_VARYING = {
    re.compile(r"\S+/first-run-\w+/"): "<temporary>/",  # before the ids, which its name may look like
    re.compile(r"\b(?:[0-9a-f]{8}|[0-9a-f]{12})\b"): "<id>",
    re.compile(r"\bin \d+\.\d+s\b"): "in <time>s",
    re.compile(r"'[^'\n]*\.venv/bin/(\w+)'|\S*\.venv/bin/(\w+)"): r"\1\2",  # quoted where a folder has a space
}
# What cannot be run again inside of a test run, and what stands for it.
_STAND_INS = {"make run": f"python {shlex.quote(str(ROOT / 'examples/first_run.py'))}"}
_NOT_RUN = ("git clone ", "cd ", "make ")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `info` is what stands behind the fence, `line` the number of its first line."""

    info: str
    text: str
    line: int

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""

    @property
    def file(self) -> str | None:
        found = re.search(r"\bfile=(\S+)", self.info)
        return found[1] if found else None

    def write(self, folder: Path) -> None:
        """Write a block that is a file: below the reader's home directory, or in the folder."""
        name = self.file or ""
        place = home_of(folder) / name.removeprefix("~/") if name.startswith("~/") else folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.text, encoding="utf-8")


def home_of(folder: Path) -> Path:
    """Return the home directory of one who reads in a folder, which is not in it: no session works above a home."""
    return folder.with_name(f"{folder.name}-person")


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name if not self.path.is_relative_to(ROOT) else self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        text = self.text
        return [
            Block(found[2].strip(), found[3], text.count("\n", 0, found.start(3)) + 1)
            for found in _FENCE.finditer(text)
        ]

    def write_files(self, folder: Path) -> None:
        """Write every block that is a file."""
        for block in self.blocks:
            if block.file is not None:
                block.write(folder)


class Reader:
    """Does what a page says, in `folder`."""

    def __init__(self, folder: Path, programs: warm_python.Programs) -> None:
        self.folder, self._programs = folder, programs
        self.outputs: list[str] = []  # everything that was printed, command by command and block by block
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._printed = ""

    async def read(self, page: Page) -> None:
        for block in page.blocks:
            place = f"{page.name}:{block.line}"
            if block.language != "output":
                assert self._printed == "", f"before {place}: the page does not show what is printed:\n{self._printed}"
            if block.file is not None:
                block.write(self.folder)
            elif block.language == "python":
                self._printed = await self._execute(block, place)
                self.outputs.append(self._printed)
            elif block.language == "output":
                _compare(block.text, self._printed, place)
                self._printed = ""
            elif block.language == "console":
                await self._run_commands(block, place)
            if block.language in _PARSERS:
                _PARSERS[block.language](block.text)
        assert self._printed == "", f"at the end of {page.name} the page does not show what is printed"

    async def _execute(self, block: Block, place: str) -> str:
        source = "\n" * (block.line - 1) + block.text  # so that a traceback shows the line of the page
        code = compile(source, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = eval(code, self._names)
            if inspect.iscoroutine(result):
                await result
        return printed.getvalue()

    async def _run_commands(self, block: Block, place: str) -> None:
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = shown.partition("\n")
            real = _STAND_INS.get(command, command).replace(".venv/bin/", "")
            if real.startswith(_NOT_RUN):
                continue
            run = await asyncio.to_thread(
                subprocess.run,
                real,
                shell=True,
                cwd=self.folder,
                env=_environment(self.folder, self._programs.folder),
                pass_fds=[self._programs.descriptor],
                capture_output=True,
                text=True,
            )
            self.outputs.append(run.stdout)
            assert run.stderr == "", f"{place}: {command}\n{run.stderr}"
            _compare(expected, run.stdout, f"{place}: {command}")


_PARSERS: dict[str, Callable[[str], Any]] = {"toml": tomllib.loads, "json": json.loads}


def _compare(shown: str, real: str, place: str) -> None:
    shown, real = shown.strip("\n"), real.strip("\n")
    for pattern, constant in _VARYING.items():
        shown, real = pattern.sub(constant, shown), pattern.sub(constant, real)
    assert real == shown, f"{place} does not show what is printed"


def _environment(folder: Path, programs: Path) -> dict[str, str]:
    foreign = ("AMPLIFIER", "MAKE", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    kept["HOME"] = str(home_of(folder))
    kept["PYTEST_ADDOPTS"] = shlex.join(plain_pytest.options(folder.with_name(f"{folder.name}_pytest")))
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "NO_COLOR": "1"}


@pytest.fixture
def page() -> Callable[[str], Page]:
    """Returns a function that opens a page by its path in the repository."""
    return lambda name: Page(ROOT / name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with the repository's examples in it; what is imported from it is forgotten afterwards."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith((str(tmp_path), str(ROOT / "examples"))):
            del sys.modules[name]
    importlib.invalidate_caches()
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("amplifier")]:
        logging.getLogger(name).setLevel(logging.NOTSET)  # a page may have silenced one


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> warm_python.Programs:
    return warm_python.Programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def reader(folder: Path, programs: warm_python.Programs) -> Reader:
    return Reader(folder, programs)
