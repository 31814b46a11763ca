"""A package index on disk: the only place that uv and pip may install from."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest


class PackageIndex:
    """The wheels of one directory. They are installed with the uv of our environment, which is much faster than pip."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        self.directory = directory
        settings = directory.with_name(f"{directory.name}-uv.toml")
        settings.write_text("no-index = true\n")  # there is no variable for it
        variables = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(directory),
            "PIP_NO_CACHE_DIR": "1",
            "UV_CONFIG_FILE": str(settings),
            "UV_FIND_LINKS": str(directory),
            "UV_NO_CACHE": "1",
            "PATH": os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent))),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    def add(
        self,
        name: str,
        version: str,
        requires: Sequence[str] = (),
        code: str = "",
        more: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Path:
        """Put a distribution into it: one module of its own name that says its version."""
        return write_wheel(self.directory, name, version, requires, code, more)


def write_wheel(
    directory: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    code: str = "",
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Write the wheel of a distribution: one module of its own name that says its version, and more files."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    texts = {
        f"{name}.py": code or f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents = {path: text.encode() for path, text in texts.items()} | more
    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        record = ""
        for path, content in contents.items():
            archive.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return wheel
