"""Which packages the quick commands may load: what they print is there before a person notices the wait."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    ("--help",): {"amplifier_cli"},
    ("--version",): {"amplifier_cli"},
    ("version",): {"amplifier_cli"},
}


@pytest.mark.parametrize("arguments", MAY_LOAD, ids=" ".join)
def test_a_quick_command_loads_typer_and_little_else(arguments: tuple[str, ...], tmp_path: Path) -> None:
    environment = {"PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROBE, *arguments]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    code, loaded = json.loads(run.stdout.splitlines()[-1])

    packages = {name.partition(".")[0] for name in loaded}
    assert code == 0
    assert packages - sys.stdlib_module_names - TYPER - STARTED == MAY_LOAD[arguments]
    assert SLOW.isdisjoint(loaded)
    assert "--help" not in arguments or "amplifier_cli.commands" not in loaded
