"""The names of a package, each loaded with its file when it is first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, files: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: `files` says, by relative name, which file or subpackage has which names.

    What is directly below the package is an attribute of it too, as if it had been imported.
    """
    below = {file.split(".")[1] for file in files}
    file_of = {name: file for file, names in files.items() for name in names}

    def load(name: str) -> Any:
        if name in file_of:
            value = getattr(import_module(file_of[name], package), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in below:
            return import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
