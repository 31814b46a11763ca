"""Each implementation of `TurnQueue` over real workers; each test has sessions of its own."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from turn_bench import TurnBench, open_durable, open_local


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["local", "durable"])
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnBench]:
    folder = tmp_path_factory.mktemp("turns")
    if request.param == "local":
        opening = open_local(folder)
    else:
        opening = open_durable(folder, request.getfixturevalue("store_address"))
    async with opening as bench:
        yield bench


@pytest.fixture(scope="module")
def store_address(postgres_database: str) -> str:
    """A store for the tests of a file."""
    return f"{postgres_database}?schema=turns_{uuid.uuid4().hex}"
