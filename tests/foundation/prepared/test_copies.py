"""Prepared bundles that are copied, kept, and used in another process."""

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import warm_python

from amplifier_foundation.bundle import Bundle, PreparedBundle

MakeBundle = Callable[..., Bundle]
MakeModule = Callable[..., Path]

USE = """
import asyncio, pickle, sys

prepared = pickle.load(open(sys.argv[1], "rb"))
folder = sys.argv[2]

async def main():
    before = folder in sys.path
    async with prepared.create_session() as session:
        print(before, folder in sys.path, await session.execute("Hello!"), session.coordinator.get_capability("seen"))
    print(folder in sys.path, await prepared.resolver.async_resolve("hooks-late", sys.argv[3]) is not None)

asyncio.run(main())
"""


def run(program: str, *arguments: str) -> list[str]:
    """Run a program in a process of its own and return the lines it prints."""
    command = [sys.executable, "-c", program, *arguments]
    return warm_python.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


async def test_a_prepared_bundle_runs_in_another_process(
    make_bundle: MakeBundle, make_module: MakeModule, cache_dir: Path, tmp_path: Path
) -> None:
    folder = make_module("hooks-kept", "coordinator.register_capability('seen', 'mounted')")
    late = make_module("hooks-late")
    bundle = make_bundle(hooks=[{"module": "hooks-kept", "source": str(folder)}], instruction="Be kind.")
    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)
    file = tmp_path / "prepared.pickle"
    file.write_bytes(pickle.dumps(prepared))

    output = run(USE, str(file), str(folder), str(late))

    assert output[0].startswith("False True ")
    assert "Hello!" in output[0]
    assert output[0].endswith("mounted")
    assert output[1] == "False True"


async def test_a_copy_has_sessions_of_its_own(
    make_bundle: MakeBundle, make_module: MakeModule, cache_dir: Path
) -> None:
    folder = make_module("hooks-copied")
    bundle = make_bundle(hooks=[{"module": "hooks-copied", "source": str(folder)}])
    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)

    async with prepared.create_session():
        copied = copy.deepcopy(prepared)
        assert isinstance(copied, PreparedBundle)
        copied.mount_plan["hooks"][0]["config"] = {"changed": True}
        async with copied.create_session() as session:
            assert session.initialized
        assert str(folder) in sys.path

    assert str(folder) not in sys.path
    assert "config" not in prepared.mount_plan["hooks"][0]
