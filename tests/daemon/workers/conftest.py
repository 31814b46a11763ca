"""One home and one set of worker processes for the tests of a file; each test has sessions of its own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from worker_bench import WorkerBench


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerBench]:
    async with WorkerBench(tmp_path_factory.mktemp("bench")) as bench:
        yield bench
