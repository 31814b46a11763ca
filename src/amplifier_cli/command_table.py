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
            "run": "Give an agent one task and print its answer.",
            "session": "List, read, continue and tidy up sessions.",
        },
    ),
    Section(
        "Set up",
        {
            "config": "Read and change the settings of this command.",
            "completion": "Print the completion script for a shell.",
            "version": "Print the version.",
        },
    ),
)

COMMANDS: dict[str, str] = {name: line for section in SECTIONS for name, line in section.commands.items()}
