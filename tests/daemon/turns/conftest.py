"""Each implementation of `TurnQueue` over real workers; each test has sessions of its own."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.extend([str(Path(__file__).parent), str(Path(__file__).parents[1] / "workers")])

from turn_bench import TurnBench, open_local


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[open_local], ids=["local"])
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnBench]:
    async with request.param(tmp_path_factory.mktemp("turns")) as bench:
        yield bench
