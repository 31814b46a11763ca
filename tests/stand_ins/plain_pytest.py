"""Pytest in a process of its own, without plugins that are slow to load and not asked for there."""

from pathlib import Path

_NOT_ASKED_FOR = ("anyio", "cacheprovider", "hypothesispytest", "schemathesis")


def options(temporary: Path) -> list[str]:
    """Return its options; a place of its own for temporary files keeps it from removing those of earlier runs."""
    return [f"--basetemp={temporary}", *(option for name in _NOT_ASKED_FOR for option in ("-p", f"no:{name}"))]
