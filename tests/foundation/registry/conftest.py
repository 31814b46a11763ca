"""Bundles on disk, and a registry with a home of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.registry import BundleRegistry

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the test's directory and return its path."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path.resolve() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "home"


@pytest.fixture
def registry(home: Path) -> BundleRegistry:
    return BundleRegistry(home)
