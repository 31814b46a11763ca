"""The question whether what comes from elsewhere may have keys and variables: asked at the terminal, answered once."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import typer

from amplifier_system.visible import visible
from amplifierd.exceptions import AgreementNeededError

from .confirmation import interruptible
from .failures import say

T = TypeVar("T")


async def once_agreed(
    attempt: Callable[[], Awaitable[T]], remember: Callable[[list[Mapping[str, Any]]], Awaitable[object]]
) -> T:
    """Open a session; a person at the terminal is asked about what its plan would give away, and a yes remembered.

    Raises:
        AgreementNeededError: they said no, or no one can be asked.
    """
    try:
        return await attempt()
    except AgreementNeededError as error:
        if not _is_agreed(error):
            raise
        await remember(error.agreements)
    return await attempt()


def _is_agreed(error: AgreementNeededError) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(visible(error.message))
    with interruptible():
        return typer.confirm("Agree? It is remembered in config/agreements.yaml", err=True)
