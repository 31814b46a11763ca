"""What like requests have in common, so that an answer can stand for all of them."""

import os
from collections.abc import Mapping
from typing import Any

from .commands import BASH, command_of, is_simple

_FILE_TOOLS = frozenset({"write_file", "edit_file"})


def remember_key(tool_name: str, tool_input: Mapping[str, Any]) -> str | None:
    """Return the key under which an answer is remembered, None for a request that is like no other.

    Files go by their directory, commands by their first two words, every other tool by its name.
    """
    if tool_name == BASH:
        command = command_of(tool_input)
        return f"{BASH}:{' '.join(command.split()[:2])}" if is_simple(command) else None
    if tool_name not in _FILE_TOOLS:
        return tool_name
    path = next((tool_input[key] for key in ("file_path", "path") if tool_input.get(key)), None)
    if not isinstance(path, str):
        return None
    directory = os.path.dirname(os.path.normpath(path))  # noqa: PTH120 - of the text; no file is looked at
    return f"{tool_name}:{directory.rstrip('/')}/" if directory else f"{tool_name}:."
