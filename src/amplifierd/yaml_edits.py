"""Changes to YAML files that people write too: comments, order and quotes stay, and files are replaced in one step."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import write_atomically

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

    Change = Callable[[CommentedMap], None]


def edited(text: str, change: Change) -> str:
    """Return a YAML text after `change` was applied to its mapping.

    Raises:
        ruamel.yaml.error.YAMLError: the text is not YAML.
        TypeError: it holds something other than a mapping.
    """
    from ruamel.yaml.comments import CommentedMap  # many read what few change

    from .yaml_round_trip import round_trip

    yaml = round_trip()
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    document = yaml.load(text)
    prefix = ""
    if document is None:  # comments belong to no value then, and would be lost
        prefix, document = _with_line_end(text), CommentedMap()
    if not isinstance(document, CommentedMap):
        raise TypeError(f"a mapping is expected, not a {type(document).__name__}")
    change(document)
    stream = io.StringIO()
    if document:
        yaml.dump(document, stream)
    return prefix + stream.getvalue()


def replace_text(path: Path, text: str) -> None:
    """Write a text in one step; missing directories are made, for the owner alone.

    A link stays one, to a file in a person's own repository for example: what it leads to is written.
    """
    file = Path(os.path.realpath(path))
    make_directory(file.parent)
    write_atomically(file, text.encode())


def mapping_in(parent: CommentedMap, key: str) -> Any:
    """Return the mapping below a key, which is put there if there is nothing."""
    if parent.get(key) is None:
        parent[key] = type(parent)()
    return parent[key]


def _with_line_end(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
