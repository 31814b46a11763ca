"""The modules that are installed beside us, as all threads of a process see them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from amplifierd.profiles.builds.installed_modules import InstalledModules, installed_modules

THREADS = 8


def test_threads_that_ask_at_once_have_them_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # so that what was found before does not count
    all_there = Barrier(THREADS)

    def ask(_: int) -> InstalledModules:
        all_there.wait()
        return installed_modules()

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(ask, range(THREADS)))

    assert len({id(one) for one in found}) == 1
