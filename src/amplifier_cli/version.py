"""The version, read without loading the kernel that carries it."""

import importlib.util
import runpy
from pathlib import Path


def version() -> str:
    spec = importlib.util.find_spec("amplifier_core")
    assert spec is not None
    assert spec.origin is not None
    return str(runpy.run_path(str(Path(spec.origin).with_name("_version.py")))["__version__"])
