"""What tests of sandboxed programs need: a sandbox, and places that a private `/tmp` does not hide."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amplifier_kit.sandbox.availability import find_sandbox

PYTHON = os.path.realpath(sys.executable)
"""The interpreter itself, without packages: a private `/tmp` hides the one of a checkout that lies there."""

_PATIENCE = 5
"""How often a busy machine is asked whether it has a sandbox."""

needs_sandbox = pytest.mark.skipif(
    not any(find_sandbox() for _ in range(_PATIENCE)),
    reason="no sandbox works here: it takes user namespaces, and bwrap or the extra `sandbox`",
)


@contextmanager
def place_outside_tmp() -> Iterator[Path]:
    """Make a directory that is not below `/tmp`."""
    directory = Path(tempfile.mkdtemp(prefix="amplifier-test-", dir="/var/tmp")).resolve()
    yield directory
    shutil.rmtree(directory)


def fingerprint(directory: Path) -> str:
    """Return a hash of everything in a directory: names, kinds, modes, contents and where links lead."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        found = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        for part in (str(path.relative_to(directory)), str(found.st_mode), str(found.st_mtime_ns)):
            digest.update(part.encode() + b"\0")
        digest.update(content + b"\0")
    return digest.hexdigest()
