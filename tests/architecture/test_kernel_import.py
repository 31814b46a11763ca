"""Importing the kernel defines things and does nothing else, seen from a fresh interpreter."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

Traces = Mapping[str, list[str]]

PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
WITHOUT_PYTEST = ("loader", "coordinator", "session", "cli", "validation", "validation.base", "testing")

# Imports modules of one package twice: first with everything they depend on, under an audit hook; then the package's
# own files alone, under a watch on the environment, which other libraries may read while they are imported themselves.
PROBE = """
import importlib, json, os, sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
ACTS = ("os.chdir", "os.chmod", "os.exec", "os.fork", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv", "os.remove",
        "os.rename", "os.rmdir", "os.symlink", "os.system", "os.unsetenv", "shutil.", "signal.", "socket.",
        "subprocess.", "tempfile.", "_thread.start_new_thread")
acts, reads = [], []

def watch(event, args):
    if event.startswith(ACTS) or event == "open" and isinstance(args[2], int) and args[2] & WRITING:
        acts.append(f"{event} {args!r}")

class Watched(type(os.environ)):
    def __getitem__(self, key):
        reads.append(key)
        return super().__getitem__(key)

    def __iter__(self):
        reads.append("*")
        return super().__iter__()

path, *modules = sys.argv[1:]
sys.path += [path] if path else []
before = set(sys.modules)
sys.addaudithook(watch)
for module in modules:
    importlib.import_module(module)
loaded = sorted(set(sys.modules) - before)

os.environ.__class__ = Watched
for name in [name for name in sys.modules if name.partition(".")[0] == modules[0].partition(".")[0]]:
    del sys.modules[name]
for module in modules:
    importlib.import_module(module)

print(json.dumps({"loaded": loaded, "acts": acts, "reads": reads}))
"""


def trace(*modules: str, path: Path | None = None) -> Traces:
    """Tell what importing `modules` loads, does and reads, bytecode files of Python itself aside."""
    command = [sys.executable, "-I", "-B", "-c", PROBE, str(path or ""), *modules]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    traces: Traces = json.loads(run.stdout)
    return traces


@pytest.fixture(scope="module")
def kernel() -> Traces:
    return trace("amplifier_core")


def test_importing_the_kernel_loads_only_the_standard_library_and_pydantic(kernel: Traces) -> None:
    packages = {name.partition(".")[0] for name in kernel["loaded"]}
    packages -= {name for name in packages if name.startswith("_sysconfigdata_")}  # stdlib, named after the platform

    assert packages - sys.stdlib_module_names - PYDANTIC == {"amplifier_core"}


def test_importing_the_kernel_leaves_the_test_kit_and_its_mocks_for_later(kernel: Traces) -> None:
    assert {"unittest.mock", "amplifier_core.testing"}.isdisjoint(kernel["loaded"])


def test_importing_the_kernel_writes_nothing_and_starts_nothing(kernel: Traces) -> None:
    assert kernel["acts"] == []


def test_importing_the_kernel_does_not_look_at_the_environment(kernel: Traces) -> None:
    assert kernel["reads"] == []


def test_importing_the_kernel_prints_nothing() -> None:
    run = subprocess.run([sys.executable, "-I", "-c", "import amplifier_core"], capture_output=True, check=True)

    assert (run.stdout, run.stderr) == (b"", b"")


def test_only_the_plugin_and_the_test_bases_need_pytest() -> None:
    traces = trace(*(f"amplifier_core.{module}" for module in WITHOUT_PYTEST))

    assert {"pytest", "_pytest", "pytest_asyncio"}.isdisjoint(traces["loaded"])


def test_an_import_with_side_effects_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(
        "import os, pathlib, socket, subprocess, sys, iniconfig\n"
        "os.getenv('HOME'), os.environ.get('SHELL'), 'LANG' in os.environ, dict(os.environ)\n"
        "home = pathlib.Path(__file__).parent / 'home'\n"
        "home.mkdir(exist_ok=True)\n"
        "(home / 'log').write_text('')\n"
        "socket.socket().close()\n"
        "subprocess.run([sys.executable, '--version'], capture_output=True)\n"
    )

    traces = trace("busy", path=tmp_path)

    assert {"busy", "iniconfig"} <= set(traces["loaded"])
    assert {"HOME", "SHELL", "LANG", "*"} <= set(traces["reads"])
    assert {act.partition(" ")[0] for act in traces["acts"]} >= {
        "os.mkdir",
        "open",
        "socket.__new__",
        "subprocess.Popen",
    }
