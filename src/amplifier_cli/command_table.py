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
            "chat": "Talk to an agent; amplifier alone does the same.",
            "run": "Give an agent one task and print its answer.",
            "continue": "Go on with the last session of this directory.",
            "session": "List, read, continue and tidy up sessions.",
        },
    ),
    Section(
        "Agents",
        {
            "profile": "List, check and compile profiles.",
            "collection": "See, add and update the collections that profiles come from.",
            "bundle": "Register, look at and use bundles.",
            "plan": "Look at mount plans, and where their values come from.",
            "agent": "Look at the agents of a profile or a bundle.",
            "tool": "List the tools of an agent, and call them yourself.",
            "module": "List, look at, check and write modules.",
            "source": "Look at sources, fetch them, and tidy up the cache.",
        },
    ),
    Section(
        "Set up",
        {
            "init": "Find a model to talk to, and remember it.",
            "doctor": "Look for what is wrong, and say how to fix it.",
            "provider": "See providers, store their keys, and try them.",
            "daemon": "Start, look at and stop the daemon of this home.",
            "store": "Look at, move, compare and back up the place of the sessions.",
            "config": "Read and change the settings of this command.",
            "import": "Bring over settings and bundles of another application.",
            "completion": "Print the completion script for a shell.",
            "version": "Print the version.",
        },
    ),
)

COMMANDS: dict[str, str] = {name: line for section in SECTIONS for name, line in section.commands.items()}
