"""A place to work in, with a home, and programs that run there."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import Started, leaving_nothing
from sandboxes import place_outside_tmp

from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.enclosure import Sandbox
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.program import Program


@dataclass
class Outcome:
    code: int | None
    out: str
    err: str


Run = Callable[..., Awaitable[Outcome]]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as started:
        yield started


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory outside `/tmp` that holds a home and a working directory."""
    with place_outside_tmp() as directory:
        for name in ("home", "work"):
            (directory / name).mkdir()
        monkeypatch.setenv("HOME", str(directory / "home"))
        yield directory


@pytest.fixture
def run(place: Path) -> Run:
    """Runs a script in the sandbox; without further words it can change nothing."""

    async def run(script: str, *, sandbox: Sandbox | None = None, **confined: Any) -> Outcome:
        confinement = Confinement(**{"working_dir": place / "work", **confined})
        environment = {"PATH": os.environ["PATH"], "HOME": str(place / "home")}
        arguments = ["/bin/bash", "-c", script]
        program = await Program.start(
            arguments, confinement, sandbox=sandbox or find_sandbox(), environment=environment
        )
        assert program.stdout is not None
        assert program.stderr is not None
        out, err = await asyncio.gather(asyncio.to_thread(program.stdout.read), asyncio.to_thread(program.stderr.read))
        program.stdout.close()
        program.stderr.close()
        return Outcome(await program.wait(), out.decode(), err.decode())

    return run
