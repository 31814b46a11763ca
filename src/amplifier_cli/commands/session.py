"""`amplifier session`: stored conversations."""

from __future__ import annotations

from typing import ClassVar

from amplifier_cli.command_group import LazyGroup, new_group

_READING = ("show", "search", "resume", "replay", "diff")
_UPKEEP = ("fork", "rename", "undo", "export", "import", "cleanup", "repair", "take-over")
_TRASH = ("delete", "restore")


class SessionGroup(LazyGroup):
    """What can be done with sessions; a list of them needs next to nothing of the rest."""

    files: ClassVar = {
        "list": "sessions.session_list",
        "attach": "sessions.session_attach",
        **dict.fromkeys(_READING, "sessions.session_reading"),
        **dict.fromkeys(_UPKEEP, "sessions.session_upkeep"),
        **dict.fromkeys(_TRASH, "sessions.session_trash"),
    }


app = new_group(
    "List, read, continue and clean up sessions.\n\n"
    "Name a session by its id or the start of it, by its name, or as last.",
    "amplifier session list",
    "amplifier session show last",
    "amplifier session resume 3fa9a888",
    cls=SessionGroup,
)


@app.callback()
def session() -> None:
    """Hold the commands together; each is in a file of its own."""
