"""One daemon as a process for all tests of faults, with a tool that does what it should not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conversation import MODULES
from hurt_daemon import HurtDaemon, hurt_daemon


@pytest.fixture(scope="session")
def daemon() -> Iterator[HurtDaemon]:
    """A daemon whose workers may have little memory."""
    settings = {"security": {"module_roots": [str(MODULES)]}, "workers": {"memory_limit_mb": 300}}
    with hurt_daemon(Path(tempfile.mkdtemp()), offline=False, **settings) as daemon:
        yield daemon
