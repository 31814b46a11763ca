"""The directory that holds what the foundation keeps when no application names another."""

import os
from pathlib import Path


def get_amplifier_home() -> Path:
    """Return `AMPLIFIER_HOME`, or `~/.amplifier` when it is not set; read at every call."""
    return Path(os.environ.get("AMPLIFIER_HOME") or "~/.amplifier").expanduser().resolve()
