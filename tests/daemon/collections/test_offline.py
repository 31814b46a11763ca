"""Collections without a network: what was synced keeps working, what never was says so."""

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from amplifierd import Home
from amplifierd.exceptions import RefResolutionError


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def remote(tmp_path: Path, repository: Any) -> Iterator[str]:
    """The source of a repository that is served over http on loopback."""
    repository.git("update-server-info")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(repository.path.parent)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"git+http://127.0.0.1:{server.server_address[1]}/origin/.git@main"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_synced_collection_works_without_a_network(
    new_home: Callable[..., Home], remote: str, text: Callable[..., str]
) -> None:
    await new_home().collections.add("team", remote)
    home = new_home(offline=True)
    shutil.rmtree(home.paths.profiles / "team")

    await home.catalogue.ensure_profile("team/base")
    result = (await home.collections.sync(["team"]))["team"]

    assert home.paths.profile_file("team/base").read_text() == text("base")
    assert (await home.catalogue.root("team")).path.is_dir()
    assert (result.status, result.warnings) == ("unchanged", ("offline-stale",))


async def test_nothing_in_the_cache_is_an_error_that_names_the_way_out(
    new_home: Callable[..., Home], remote: str
) -> None:
    home = new_home(offline=True)

    with pytest.raises(RefResolutionError) as refused:
        await home.collections.add("team", remote)

    assert refused.value.reason == "offline"
    assert remote in str(refused.value)
    assert not home.paths.collections_file.exists()


async def test_one_collection_that_needs_the_network_does_not_stop_the_others(
    new_home: Callable[..., Home], remote: str, register: Callable[[str], None], repository: Any
) -> None:
    home = new_home(offline=True)
    register(f"collections:\n  far: {remote}\n  near: {repository.source}@main\n")

    results = await home.collections.sync()

    assert {key: result.status for key, result in results.items()} == {
        **{"foundation": "synced", "far": "error", "near": "synced"}
    }
