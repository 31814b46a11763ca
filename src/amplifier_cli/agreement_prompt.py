"""The question whether what comes from elsewhere may have keys and variables: asked at the terminal, answered once."""

from __future__ import annotations

import sys

import typer

from amplifier_system.visible import visible
from amplifierd.agreements import Agreement, Agreements
from amplifierd.exceptions import AgreementNeededError
from amplifierd.paths import Paths

from .confirmation import interruptible
from .failures import say


def is_agreed_now(error: AgreementNeededError, paths: Paths) -> bool:
    """Ask a person at the terminal about all that is needed, and remember a yes; False where no one can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(visible(error.message))
    with interruptible():
        if not typer.confirm("Agree? It is remembered in config/agreements.yaml", err=True):
            return False
    Agreements(paths).add(*map(Agreement.read, error.agreements))
    return True
