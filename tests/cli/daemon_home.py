"""A home that a real daemon serves, in a process of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amplifierd.control import background
from amplifierd.daemon.run_file import RunningDaemon
from amplifierd.paths import Paths


@contextmanager
def served_home(home: Path, *options: str) -> Iterator[RunningDaemon]:
    """Serve a home until the block ends, on a free port of loopback unless the options say otherwise."""
    paths = Paths.from_environment(home, {})
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith(("AMPLIFIER", "ANTHROPIC_", "OPENAI_"))]:
            environment.delenv(name)
        running = background.start(paths, ["--home", str(home), "serve", *(options or ("--port", "0")), "--offline"])
    try:
        yield running
    finally:
        background.stop(paths)
