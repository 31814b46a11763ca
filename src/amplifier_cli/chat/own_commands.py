"""Commands that people write themselves: `.amplifier/commands/<name>.md`, with `$ARGUMENTS` for what follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from amplifier_foundation.io import parse_frontmatter

_ARGUMENTS = "$ARGUMENTS"


@dataclass(frozen=True)
class OwnCommand:
    """A prompt with a name."""

    name: str
    description: str
    text: str

    def prompt(self, arguments: str) -> str:
        if _ARGUMENTS in self.text:
            return self.text.replace(_ARGUMENTS, arguments)
        return f"{self.text}\n\n{arguments}".strip()


def own_commands(folders: Iterable[Path]) -> dict[str, OwnCommand]:
    """Return the commands in some folders by their names; of two with one name, that of the later folder."""
    files = [file for folder in folders for file in sorted(folder.glob("*.md"))]
    return {file.stem: _read(file) for file in files}


def _read(file: Path) -> OwnCommand:
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        front, body = parse_frontmatter(text)
    except (ValueError, yaml.YAMLError):
        front, body = {}, text
    description = str((front or {}).get("description") or body.strip().partition("\n")[0])
    return OwnCommand(file.stem, description, body.strip())
