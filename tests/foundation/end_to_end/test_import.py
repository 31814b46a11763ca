"""What `import amplifier_foundation` brings along: the kernel, pydantic and YAML, and nothing that only some need."""

import json
import subprocess
import sys

LOADED = """
import sys
before = set(sys.modules)
import amplifier_foundation
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""

ALLOWED = {
    "amplifier_core",
    "amplifier_foundation",
    "amplifier_sessions",
    "amplifier_system",
    "annotated_types",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
    "yaml",
}
EXPENSIVE = {"difflib", "http.client", "multiprocessing", "sqlite3", "tomllib", "urllib.request"}


def loaded() -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_import_brings_no_package_beyond_kernel_pydantic_and_yaml() -> None:
    packages = {name.partition(".")[0] for name in loaded()} - sys.stdlib_module_names

    assert {name for name in packages if not name.startswith("_")} - {"cython_runtime"} <= ALLOWED


def test_the_import_loads_nothing_that_only_fetching_preparing_and_running_need() -> None:
    parts = {f"amplifier_foundation.{part}" for part in ("modules", "prepared", "spawn")}

    assert loaded() & (EXPENSIVE | parts) == set()
