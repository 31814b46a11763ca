"""`amplifier store`, and what the command shows of sessions that are in a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Amplifier = Callable[..., Any]


@pytest.fixture
def in_postgres(amplifier: Any, postgres_address: str) -> Any:
    """The command, with sessions in a database."""
    amplifier.variables["AMPLIFIERD_STORE"] = postgres_address
    return amplifier


def test_sessions_of_a_database_are_listed_examined_and_run(in_postgres: Any, tmp_path: Path) -> None:
    assert in_postgres("run", "How many harbours are there?").returncode == 0

    listed = in_postgres("session", "list")
    assert "How many harbours are there?" in listed.stdout
    assert not (tmp_path / "home/state/sessions").exists()
    examined = in_postgres("doctor")
    assert "1 session in postgresql://amplifier:***@127.0.0.1" in examined.stdout
