"""Every command in one line, so that `amplifier --help` needs to import none of them."""

from typing import NamedTuple


class Section(NamedTuple):
    """Commands that belong together."""

    title: str
    commands: dict[str, str]


SECTIONS = (
    Section(
        "Work",
        {
            "chat": "Chat with an agent; amplifier alone does the same.",
            "run": "Give an agent one task and print its answer.",
            "continue": "Continue the last session of this directory.",
            "session": "List, read, continue and clean up sessions.",
        },
    ),
    Section(
        "Agents",
        {
            "profile": "List, check and compile profiles.",
            "collection": "List, add and update collections of profiles.",
            "bundle": "Register, inspect and use bundles.",
            "plan": "Inspect mount plans, and see where their values come from.",
            "agent": "List and show the agents of a profile or a bundle.",
            "tool": "List the tools of an agent, and call them yourself.",
            "module": "List, inspect, validate and create modules.",
            "source": "Inspect and fetch sources, and clean up the cache.",
        },
    ),
    Section(
        "Set up",
        {
            "init": "Set up a model: a key, or a server on this machine.",
            "doctor": "Check the installation, and say how to fix what is wrong.",
            "provider": "List providers, store their keys, and test them.",
            "daemon": "Start, inspect and stop the daemon of this home.",
            "store": "Inspect, migrate, verify and back up the session store.",
            "config": "Read and change the settings of this command.",
            "import": "Import settings and bundles from ~/.amplifier.",
            "completion": "Print the completion script for a shell.",
            "version": "Print the version.",
        },
    ),
)

OF_DAEMON = ("cluster", "serve", "service", "token")
"""What only `amplifierd` does."""

COMMANDS: dict[str, str] = {name: line for section in SECTIONS for name, line in section.commands.items()}
