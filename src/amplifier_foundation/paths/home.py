"""The directory that holds what the foundation keeps when no application names another."""

from pathlib import Path

from amplifier_system.homes import ecosystem_home


def get_amplifier_home() -> Path:
    """Return `AMPLIFIER_HOME`, or `~/.amplifier` when it is not set; read at every call."""
    return ecosystem_home()
