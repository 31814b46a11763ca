"""Which packages the quick commands may load: what they print is there before a person notices the wait."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from stored_sessions import message, new_session

from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

PROBE = """
import json, sys
from amplifier_cli.main import main
code = main(sys.argv[1:])
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""

TYPER = {"typer", "annotated_doc", "shellingham"}
STARTED = {"__main__", "_distutils_hack"}  # by the interpreter itself
SLOW = {"asyncio", "importlib.metadata", "unittest"}  # of the standard library
MAY_LOAD = {
    ("--help",): {"amplifier_cli", "amplifier_system"},
    ("--version",): {"amplifier_cli", "amplifier_system"},
    ("version",): {"amplifier_cli", "amplifier_system"},
    ("session", "list"): {"amplifier_cli", "amplifier_sessions", "amplifier_system"},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a session in it, and one of another application beside it."""
    home = tmp_path_factory.mktemp("home")
    asyncio.run(store_a_session(Paths.from_environment(home / ".amplifierd", environ={})))
    other = home / ".amplifier/projects/p/sessions/other"
    other.mkdir(parents=True)
    (other / "metadata.json").write_text('{"name": "elsewhere"}')
    return home


async def store_a_session(paths: Paths) -> None:
    store = FileStore(paths)
    new = new_session("session_of_a_test", message_count=1, messages=[message("What is this?")])
    await store.release(await store.create(new, Holder.of_this_process("test")))
    await store.close()


@pytest.mark.parametrize("arguments", MAY_LOAD, ids=" ".join)
def test_a_quick_command_loads_typer_and_little_else(arguments: tuple[str, ...], home: Path) -> None:
    environment = {"PATH": "", "HOME": str(home)}
    command = [sys.executable, "-c", PROBE, *arguments]
    run = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=True)
    code, loaded = json.loads(run.stdout.splitlines()[-1])

    packages = {name.partition(".")[0] for name in loaded}
    assert code == 0
    assert packages - sys.stdlib_module_names - TYPER - STARTED == MAY_LOAD[arguments]
    assert SLOW.isdisjoint(loaded)
    assert "--help" not in arguments or "amplifier_cli.commands" not in loaded


RARE = {
    "amplifier_foundation.registry.registry",
    "amplifierd.profiles.builds.compilation",
    "amplifierd.plans.difference",
    "amplifierd.sessions.recordings.replay",
    "amplifierd.sessions.recordings.session_archive",
    "amplifierd.sessions.spawning",
    "ctypes",
    "filelock",
    "prompt_toolkit",
    "rich",
    "ruamel.yaml",
}


def test_a_run_loads_what_few_runs_need_when_they_need_it() -> None:
    loaded = "import json, sys, amplifier_cli.commands.run, amplifierd.sessions.session_parts"
    command = [sys.executable, "-c", f"{loaded}; print(json.dumps([*sys.modules]))"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)

    assert RARE.intersection(json.loads(run.stdout)) == set()
