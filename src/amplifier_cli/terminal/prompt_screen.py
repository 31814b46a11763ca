"""Lines that are typed, as prompt_toolkit draws them: what is typed, completed, remembered or asked is visible."""

from __future__ import annotations

from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.layout.screen import Char

from amplifier_system.visible import visible_line


class _Shown(dict[str, str]):
    """What is drawn for each character that would be obeyed or not be seen."""

    def __contains__(self, character: object) -> bool:
        return isinstance(character, str) and visible_line(character) != character

    def __missing__(self, character: str) -> str:
        return visible_line(character)


def new_prompt(**options: Any) -> PromptSession[str]:
    """Return a line to type in; every character that it draws passes the border."""
    Char.display_mappings = _Shown()
    return PromptSession(**options)
