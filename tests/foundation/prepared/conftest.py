"""Bundles that run on the mock provider, and modules that record what they saw."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle

MakeBundle = Callable[..., Bundle]


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def make_bundle(tmp_path: Path) -> MakeBundle:
    """Make a bundle that echoes; keywords are the bundle's fields."""

    def make(name: str = "base", **fields: Any) -> Bundle:
        return Bundle(
            name,
            **{
                "session": {"orchestrator": "loop-basic", "context": "context-simple"},
                "providers": [{"module": "provider-mock", "config": {"mode": "echo"}}],
                "base_path": tmp_path,
                **fields,
            },
        )

    return make


@pytest.fixture
def make_module(tmp_path: Path) -> Callable[..., Path]:
    """Write a hook module whose `mount` has the given body."""

    def make(module_id: str, body: str = "pass") -> Path:
        folder = tmp_path / "modules" / module_id
        package = folder / f"amplifier_module_{module_id.replace('-', '_')}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            "from amplifier_core import HookResult\n\n"
            "async def nothing(event, data):\n    return HookResult()\n\n"
            "async def mount(coordinator, config=None):\n"
            "    coordinator.hooks.register('tool:pre', nothing, name='watcher')\n"
            f"    {body}\n"
        )
        return folder

    return make


@pytest.fixture(autouse=True)
def same_imports() -> Iterator[None]:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name.startswith("amplifier_module_hooks_"):
            del sys.modules[name]
